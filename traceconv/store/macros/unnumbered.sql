-- doc = "[text] A label without the number that tells it from equal ones: add<Half>#2 becomes add<Half>."
unnumbered(label) AS
regexp_replace(label, '#[0-9]+$', '')

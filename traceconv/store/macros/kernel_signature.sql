-- doc = "[text] Name of a kernel up to its arguments, in one notation: profilers differ in blanks, void, casts of template arguments ((int)4, 4, 4ul; (bool)1, true) and unnamed namespaces. For comparisons between files."
kernel_signature(name) AS
regexp_replace(regexp_replace(regexp_replace(replace(replace(regexp_replace(name,
  '\s|^void |\(anonymous namespace\)::|<unnamed>::', '', 'g'), '(bool)1', 'true'), '(bool)0', 'false'),
  '\([a-z]*\)(-?[0-9])', '\1', 'g'), '([0-9])(u|l)+\b', '\1', 'g'), '^(.*>|[^(<]*)\(.*$', '\1')

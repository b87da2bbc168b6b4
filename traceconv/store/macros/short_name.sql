-- doc = "[text] The function of a C++ name, demangled or not, without namespaces, template arguments and arguments; other names unchanged. In a mangled name, the last part before the template arguments."
-- # A mangled name is a sequence of lengths and parts: chr(1) marks the place, before which the last part is.
short_name(name) AS
CASE WHEN length(name) > 4000 THEN name
WHEN regexp_matches(name, '^_ZZ?(N[rVK]*(St|Sa|Ss)?|L|St)?[0-9]') THEN
  coalesce(nullif(split_part(list_reduce(
    list_prepend(chr(1) || regexp_replace(name, '^_ZZ?(N[rVK]*(St|Sa|Ss)?|L|St)?', ''), ['' FOR i IN range(24)]),
    lambda rest, step: CASE WHEN regexp_matches(rest, '\x01[0-9]') THEN
      substr(split_part(rest, chr(1), 2), length(regexp_extract(rest, '\x01([0-9]{1,4})', 1)) + 1,
             regexp_extract(rest, '\x01([0-9]{1,4})', 1)::INTEGER)
      || chr(1) ||
      substr(split_part(rest, chr(1), 2), length(regexp_extract(rest, '\x01([0-9]{1,4})', 1)) + 1
             + regexp_extract(rest, '\x01([0-9]{1,4})', 1)::INTEGER)
    ELSE rest END), chr(1), 1), ''), name)
WHEN regexp_matches(regexp_replace(name, '( \[clone [^\]]*\]|\.kd)+$', ''),
                    '(?s)^(void |[A-Za-z_(][^/]*[A-Za-z0-9_>][<(].*[>)]( const)?$)') THEN
  coalesce(nullif(regexp_extract(regexp_replace(regexp_extract(list_reduce(
    list_prepend(
      regexp_replace(replace(replace(replace(regexp_replace(name, '( \[clone [^\]]*\]|\.kd)+$', ''),
        '(anonymous namespace)', ''), 'operator()', 'operator'), '->', ''), '\) ?(<<|>>|[<>]=?) ?\(', ')(', 'g'),
      ['' FOR i IN range(24)]),
    lambda rest, step: regexp_replace(rest, '<[^<>(){}]*>|\([^<>(){}]*\)|\{[^<>(){}]*\}', '', 'g')),
    '^[^<({]*'), '(::|operator| const|[>)} ])+$', ''), '([^: ]|[^: ]:)*$'), ''), name)
ELSE name END

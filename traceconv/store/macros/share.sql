-- doc = "[ratio] part / total as doubles; 0 if total is 0, NULL if one of them is NULL."
share(part, total) AS
CASE WHEN total = 0 THEN 0 ELSE part::DOUBLE / total::DOUBLE END

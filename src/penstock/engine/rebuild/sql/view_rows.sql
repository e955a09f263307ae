-- name: copy_rows
COPY (SELECT {texts} FROM penstock.view_{id} r) TO STDOUT (FORMAT csv)

-- name: copy_other_rows
-- The rows that another version of the view does not have.
COPY (
    SELECT {texts}
    FROM (SELECT {names} FROM penstock.view_{id} EXCEPT SELECT {names} FROM penstock.view_{other}) r
) TO STDOUT (FORMAT csv)

-- The values of the console's overview, recorded every ten seconds and kept for a day. Rates are events per second since
-- the row before. Unknown values are null.
CREATE TABLE penstock.vitals (
    at        timestamptz PRIMARY KEY,
    pushed    double precision,
    read      double precision,
    results   double precision,
    freshness double precision,
    backlog   double precision NOT NULL,
    dead      double precision NOT NULL,
    firing    double precision NOT NULL
);

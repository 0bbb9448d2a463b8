//! Recording a side into files, and comparing two recordings.

mod compare;
mod fake;
mod pairing;
mod record;
mod sites;

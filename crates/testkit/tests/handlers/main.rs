//! The kit for handlers: it finds what is not once, it lets what is pass, and its texts say where.

#![allow(unreachable_pub, missing_docs, clippy::unwrap_used)]

mod found;
mod place;
mod stages;

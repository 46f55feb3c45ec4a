//! One module per noun; each holds its options and what they do.

pub mod acting;
pub mod backlog;
pub mod bench;
pub mod broker;
pub mod demo;
pub mod doctor;
pub mod explain;
pub mod init;
pub mod migrate;
pub mod old_cases;
pub mod operation;
pub mod quarantine;
pub mod refusing;
pub mod replay;
pub mod send;
pub mod subscription;
pub mod up;

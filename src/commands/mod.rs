//! The bodies of the commands: one file each.

pub mod run;

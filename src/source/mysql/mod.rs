//! The MySQL and MariaDB source.

pub mod charset;
pub mod decimal;
pub mod double;
pub mod jsonb;

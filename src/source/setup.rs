//! What the sources' set-ups share.

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was there already.
    WasThere,
    /// It was made.
    Made,
    /// The right to is lacking, with the server's words.
    Denied(String),
}

//! Exit codes and nothing else.

fn main() {}

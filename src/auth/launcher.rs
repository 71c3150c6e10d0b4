//! Whoever launches the program on a pipe has no token to show: it may read the configuration, tokens and all,
//! and says by itself which of the clients it is.

use std::sync::Arc;

use crate::config::{ClientConfig, Config};
use crate::exchange::Principal;

/// Why a pipe has no principal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// No client is named, and callers without credentials are not served.
    #[error("callers without credentials are not served: say who it is with `--client NAME`, one of {0}")]
    Unnamed(String),
    /// There is nobody at all.
    #[error("nobody is served: the configuration has no `clients`, and `auth.anonymous` is false")]
    Nobody,
    /// A client is named that there is not.
    #[error("there is no client {0:?} in the configuration; there is {1}")]
    Unknown(String, String),
}

/// The principal of a pipe: the client of this name, or without one that of callers without credentials.
///
/// # Errors
/// See [`LaunchError`]; the messages name the clients that there are.
pub fn launched_by(config: &Config, name: Option<&str>) -> Result<Principal, LaunchError> {
    let is_meant = |client: &ClientConfig| match name {
        Some(name) => &*client.name == name && !client.is_group,
        None => client.is_anonymous,
    };
    if config.clients.is_empty() {
        return Err(LaunchError::Nobody);
    }
    let meant = config.clients.iter().enumerate().find(|(_, client)| is_meant(client));
    match (meant, name) {
        (Some((place, client)), _) => Ok(Principal::new(place, Arc::clone(&client.name))),
        (None, Some(name)) => Err(LaunchError::Unknown(name.to_owned(), names(config))),
        (None, None) => Err(LaunchError::Unnamed(names(config))),
    }
}

fn names(config: &Config) -> String {
    config
        .clients
        .iter()
        .filter(|client| !client.is_group)
        .map(|client| &*client.name)
        .collect::<Vec<_>>()
        .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::for_test;

    #[test]
    fn a_pipe_is_whom_its_launcher_names_and_nobody_by_chance() {
        let mut open = for_test::config(&[], &["alice", "anonymous"]);
        open.clients[1].is_anonymous = true;
        let closed = for_test::config(&[], &["alice", "ci"]);
        let nobody = for_test::config(&[], &[]);
        let who =
            |config: &Config, name| launched_by(config, name).map(|who| (who.client, who.name.to_string()));
        assert_eq!(who(&open, None), Ok((1, "anonymous".to_owned())));
        assert_eq!(who(&open, Some("alice")), Ok((0, "alice".to_owned())));
        assert_eq!(who(&closed, Some("ci")), Ok((1, "ci".to_owned())));
        assert_eq!(who(&closed, None), Err(LaunchError::Unnamed("alice, ci".to_owned())));
        let unknown = LaunchError::Unknown("Alice".to_owned(), "alice, ci".to_owned());
        assert_eq!(who(&closed, Some("Alice")), Err(unknown));
        assert_eq!(who(&closed, Some("anonymous")).map_err(|_| ()), Err(()));
        assert_eq!(who(&nobody, None), Err(LaunchError::Nobody));
    }
}

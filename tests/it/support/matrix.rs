//! The axes: eras of the client and of the server, and the transport between gateway and server.

/// The two eras, as the tests name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    Legacy,
    Modern,
}

/// How the gateway reaches a scripted server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Stdio,
    Http,
    /// HTTP+SSE of 2024-11-05, which only legacy servers have.
    Sse,
}

impl Transport {
    /// Those of both eras.
    pub const ALL: [Self; 2] = [Self::Stdio, Self::Http];
    /// Those of legacy servers.
    pub const LEGACY: [Self; 3] = [Self::Stdio, Self::Http, Self::Sse];
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
pub struct Cell {
    pub client: Era,
    pub server: Era,
    pub transport: Transport,
}

impl Cell {
    /// Whether both ends are of one era, so that nothing is translated.
    pub fn is_straight(self) -> bool {
        self.client == self.server
    }
}

/// Makes one test per cell out of a scenario `fn(Cell)`.
#[macro_export]
macro_rules! matrix {
    ($($scenario:ident)*) => {$(
        mod $scenario {
            use $crate::support::matrix::{Cell, Era, Transport};
            $crate::matrix!(@cells $scenario
                legacy_to_legacy_over_stdio Legacy Legacy Stdio,
                legacy_to_legacy_over_http Legacy Legacy Http,
                legacy_to_legacy_over_sse Legacy Legacy Sse,
                legacy_to_modern_over_stdio Legacy Modern Stdio,
                legacy_to_modern_over_http Legacy Modern Http,
                modern_to_legacy_over_stdio Modern Legacy Stdio,
                modern_to_legacy_over_http Modern Legacy Http,
                modern_to_legacy_over_sse Modern Legacy Sse,
                modern_to_modern_over_stdio Modern Modern Stdio,
                modern_to_modern_over_http Modern Modern Http);
        }
    )*};
    (@cells $scenario:ident $($name:ident $client:ident $server:ident $transport:ident),*) => {$(
        #[test]
        fn $name() {
            super::$scenario(Cell {
                client: Era::$client,
                server: Era::$server,
                transport: Transport::$transport,
            });
        }
    )*};
}

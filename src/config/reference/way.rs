//! The keys of certificates, and of where a server may be.

use serde_json::{Value, json};

use super::{Flag, Form, Free, Key, Nested, Shape, Table, schema};

pub(crate) static CA_FILE: Key<Free> = Key {
    name: "ca_file",
    about: "Authorities that its certificate is believed by, in the place of the system's: a private CA. PEM; read \
            for each connection attempt. A relative path counts from the folder of the file.",
    form: Free { written: "path", default: "those of the system", bounds: "" },
};

pub(crate) static CLIENT_CERT: Key<Free> = Key {
    name: "client_cert",
    about: "The certificate that it is shown, with those that lead to its authority behind it. PEM. Needs \
            `client_key`.",
    form: Free { written: "path", default: "", bounds: "" },
};

pub(crate) static CLIENT_KEY: Key<Free> = Key {
    name: "client_key",
    about: "The key of `client_cert`. PEM.",
    form: Free { written: "path", default: "", bounds: "" },
};

pub(crate) static DENY_PRIVATE: Key<Flag> = Key {
    name: "deny_private_addresses",
    about: "Whether only addresses of the public internet are dialled: no loopback, no private network, no metadata \
            of a cloud, in any spelling. What is looked at is the very address that is dialled. Behind a proxy of \
            the environment, which resolves names itself, only a `url` with a public IP address is.",
    form: Flag { default: Some(false), otherwise: "" },
};

/// An address, or a mapping with it, or `false` where there may be none.
#[derive(Debug)]
pub(crate) struct Address {
    pub(crate) text: Free,
    pub(crate) table: &'static Table,
    pub(crate) may_be_off: bool,
}

impl Form for Address {
    fn written(&self) -> String {
        self.text.written()
    }

    fn default(&self) -> String {
        self.text.default()
    }

    fn bounds(&self) -> String {
        self.text.bounds()
    }

    fn shape(&self) -> Shape {
        Shape::List(self.table)
    }

    fn schema(&self) -> Value {
        let mut ways = vec![schema::address(), schema::reference(self.table)];
        ways.extend(self.may_be_off.then(|| json!({"const": false})));
        json!({ "anyOf": ways })
    }
}

/// A listener with more than an address.
pub(crate) static LISTEN_TABLE: Table = Table {
    path: "listen and admin, as mappings",
    about: "A listener that speaks TLS.",
    keys: &[&LISTEN_ADDRESS, &LISTEN_TLS],
    later: &[],
    foreign: &[],
    aliases: &[("port", "address"), ("host", "address")],
    example: "\
listen: {address: \"0.0.0.0:8443\", tls: {cert: tls/cert.pem, key: tls/key.pem, client_ca: tls/clients.pem}}
upstreams:
  time: {command: uvx, args: [mcp-server-time]}
clients:
  ci: {certificates: [\"URI:spiffe://acme.example/ci\"]}
",
};

pub(crate) static LISTEN_ADDRESS: Key<Free> = Key {
    name: "address",
    about: "Where it listens, as the text alone.",
    form: Free { written: "address", default: "as the text alone", bounds: "" },
};

pub(crate) static LISTEN_TLS: Key<Nested> = Key {
    name: "tls",
    about: "Its certificates. Must be there; without TLS, the address alone is written.",
    form: Nested(&TLS_TABLE),
};

/// Certificates of a listener.
pub(crate) static TLS_TABLE: Table = Table {
    path: "tls (of a listener)",
    about: "Certificates of a listener, TLS 1.2 and 1.3. The files are looked at every 10 s, and read again when they \
            have changed: connections that are opened from then on get what is new. Files that cannot be used \
            change nothing, and are told in the log. Relative paths count from the folder of the file.",
    keys: &[&TLS_CERT, &TLS_KEY, &TLS_CLIENT_CA],
    later: &[],
    foreign: &[],
    aliases: &[("cert_file", "cert"), ("certificate", "cert"), ("key_file", "key"), ("ca", "client_ca")],
    example: "",
};

pub(crate) static TLS_CERT: Key<Free> = Key {
    name: "cert",
    about: "The certificate, with those that lead to its authority behind it. PEM. Must be there.",
    form: Free { written: "path", default: "", bounds: "" },
};

pub(crate) static TLS_KEY: Key<Free> = Key {
    name: "key",
    about: "Its key. PEM. Must be there.",
    form: Free { written: "path", default: "", bounds: "" },
};

pub(crate) static TLS_CLIENT_CA: Key<Free> = Key {
    name: "client_ca",
    about: "Authorities that certificates of clients are believed by. Clients are asked for one then, and need none: \
            who a certificate is says `certificates` of a client. On `admin`, a certificate is needed. PEM.",
    form: Free { written: "path", default: "nobody is asked", bounds: "" },
};

pub(crate) static CERTIFICATES: Key<Free> = Key {
    name: "certificates",
    about: "Names in certificates that make their bearers this client, where `listen.tls.client_ca` believes them: \
            `URI:spiffe://acme/ci`, `DNS:ci.acme.example`, `email:ci@acme.example`, or `CN:ci`, letter by letter. A \
            token in the request wins over a certificate. A client with such a name needs no `tokens`.",
    form: Free { written: "list of texts", default: "`[]`", bounds: "at most 16; each name at one client" },
};

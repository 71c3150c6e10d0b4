//! TLS on both sides: our listeners, servers with private authorities, certificates of clients, proxies on the way.

use serde_json::{Value, json};

use crate::support::client::{Client, Request};
use crate::support::eventually;
use crate::support::gateway::{Config, Gateway};
use crate::support::issuer::{Issuer, Key};
use crate::support::matrix::Era;
use crate::support::script::Script;
use crate::support::tls::{Authority, Issued, initiate, proxy, terminate};

const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list"}"#;

/// A gateway that speaks TLS on both listeners, in a folder with its certificates.
fn over_tls(config: Config, server: &Issued, clients: &Authority) -> Gateway {
    let folder = tempfile::tempdir().unwrap();
    server.write(folder.path(), "server");
    std::fs::write(folder.path().join("clients.pem"), clients.pem()).unwrap();
    let tls = json!({"cert": "server.pem", "key": "server.key", "client_ca": "clients.pem"});
    let config = config.set("listen", json!({"address": "127.0.0.1:0", "tls": tls}));
    Gateway::start_in(folder, &config.text(), config.variables())
}

#[test]
fn tls_04_the_endpoint_speaks_tls_and_knows_clients_by_certificates() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let up = Script::echo(Era::Legacy).http();
    let config = Config::new().upstream("up", &up).env("A", "static-t0ken").clients(json!({
        "ci": {"certificates": ["URI:spiffe://acme.example/ci"]},
        "alice": {"tokens": [{"env": "A"}], "tools": {"allow": []}},
    }));
    let gateway = over_tls(config, &authority.issue(&["127.0.0.1"]), &clients);
    gateway.wait_ready();
    let plain = std::panic::catch_unwind(|| Request::post(gateway.mcp, "/mcp", LIST).send().status);
    assert!(plain.is_err(), "nothing is said without TLS: {plain:?}");
    let ask = |own: Option<&Issued>, token: Option<&str>| {
        let way = initiate(gateway.mcp, authority.client(own), "127.0.0.1");
        let request = Request::post(way.address, "/mcp", LIST).header("Host", &gateway.mcp.to_string());
        let request = token
            .iter()
            .fold(request, |request, token| request.header("Authorization", &format!("Bearer {token}")));
        let response = request.send();
        (response.status, response.text().contains("up__echo"))
    };
    let ci = clients.issue(&["spiffe://acme.example/ci", "other.example"]);
    assert_eq!(ask(Some(&ci), None), (200, true), "a certificate is a client");
    assert_eq!(ask(None, None), (401, false), "without one, a token is needed");
    assert_eq!(ask(None, Some("static-t0ken")), (200, false));
    assert_eq!(ask(Some(&ci), Some("static-t0ken")), (200, false), "a token wins");
    assert_eq!(ask(Some(&ci), Some("wrong")), (401, false), "and a bad one is not made up for");
    assert_eq!(ask(Some(&clients.issue(&["spiffe://acme.example/cd"])), None), (401, false), "nobody's name");
    for foreign in [
        Authority::new().issue(&["spiffe://acme.example/ci"]),
        clients.issue_expired(&["spiffe://acme.example/ci"]),
    ] {
        let refused = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ask(Some(&foreign), None)));
        assert!(refused.is_err(), "who made that certificate is not believed: {refused:?}");
    }
}

#[test]
fn tls_05_new_certificates_are_taken_without_a_restart() {
    let authority = Authority::new();
    let up = Script::echo(Era::Legacy).http();
    let gateway = over_tls(Config::new().upstream("up", &up), &authority.issue(&["old.example"]), &authority);
    gateway.wait_ready();
    let ask = |name: &str| {
        let way = initiate(gateway.mcp, authority.client(None), name);
        let request = Request::post(way.address, "/mcp", LIST).header("Host", &gateway.mcp.to_string());
        std::panic::catch_unwind(|| request.send().status).ok()
    };
    assert_eq!((ask("old.example"), ask("new.example")), (Some(200), None));
    std::fs::write(gateway.folder().join("server.pem"), "no certificate\n").unwrap();
    eventually("the bad file is told", || {
        gateway.warnings().iter().any(|line| line.contains("certificates_failed")).then_some(())
    });
    assert_eq!(ask("old.example"), Some(200), "what cannot be used changes nothing");
    authority.issue(&["new.example"]).write(&gateway.folder(), "server");
    eventually("the new certificate is taken", || (ask("new.example") == Some(200)).then_some(()));
}

#[test]
fn tls_01_a_private_authority_is_believed_where_it_is_named() {
    let (authority, other) = (Authority::new(), Authority::new());
    let up = Script::echo(Era::Legacy).http();
    let host = up.address();
    let good = terminate(host, authority.issue(&["127.0.0.1"]).server(None));
    let expired = terminate(host, authority.issue_expired(&["127.0.0.1"]).server(None));
    let misnamed = terminate(host, authority.issue(&["elsewhere.example"]).server(None));
    let foreign = terminate(host, other.issue(&["127.0.0.1"]).server(None));
    let asking = terminate(host, authority.issue(&["127.0.0.1"]).server(Some(&other)));
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    other.issue(&["gateway.example"]).write(folder.path(), "own");
    let https = |address: std::net::SocketAddr, more: Value| {
        let mut entry = json!({"url": format!("https://{address}/mcp"), "ca_file": "ca.pem"});
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        entry
    };
    let own = json!({"client_cert": "own.pem", "client_key": "own.key"});
    let config = Config::new()
        .raw_upstream("good", https(good.address, json!({})))
        .raw_upstream("mutual", https(asking.address, own))
        .raw_upstream("unshown", https(asking.address, json!({})))
        .raw_upstream("expired", https(expired.address, json!({})))
        .raw_upstream("misnamed", https(misnamed.address, json!({})))
        .raw_upstream("foreign", https(foreign.address, json!({})))
        .upstream("plain", &up);
    let gateway = Gateway::start_in(folder, &config.text(), config.variables());
    let client = Client::modern(&gateway);
    eventually("the good ones are there", || {
        let names = client.request("tools/list", "{}").send().text();
        ["good__echo", "mutual__echo", "plain__echo"].iter().all(|name| names.contains(name)).then_some(())
    });
    assert_eq!(client.echo("good__echo", "x"), "x");
    assert_eq!(client.echo("mutual__echo", "y"), "y");
    let failed = |name: &str, reason: &str| {
        eventually(&format!("{name} fails for {reason}"), || {
            let told = gateway.log().into_iter().find(|line| {
                line.contains("upstream_failed")
                    && line.contains(&format!("\"{name}\""))
                    && line.contains(reason)
            });
            told.map(drop)
        });
    };
    failed("expired", "expired");
    failed("misnamed", "not valid for name");
    failed("foreign", "UnknownIssuer");
    failed("unshown", "CertificateRequired");
}

#[test]
fn tls_06_a_proxy_passes_tls_on() {
    let authority = Authority::new();
    let up = Script::echo(Era::Modern).http();
    let server = terminate(up.address(), authority.issue(&["upstream.test"]).server(None));
    let proxy = proxy(server.address);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ca.pem"), authority.pem()).unwrap();
    let entry = json!({"url": "https://upstream.test:8443/mcp", "ca_file": "ca.pem"});
    let config = Config::new()
        .raw_upstream("far", entry)
        .env("HTTPS_PROXY", &format!("http://{}", proxy.address))
        .env("NO_PROXY", "");
    let gateway = Gateway::start_in(folder, &config.text(), config.variables());
    gateway.wait_ready();
    assert_eq!(Client::legacy(&gateway).echo("far__echo", "x"), "x");
    let asked = proxy.asked.lock().unwrap().clone();
    assert!(
        !asked.is_empty() && asked.iter().all(|line| line == "CONNECT upstream.test:8443 HTTP/1.1"),
        "{asked:?}"
    );
}

#[test]
fn ssrf_01_private_addresses_are_not_dialled_where_that_is_said() {
    let up = Script::echo(Era::Legacy).http();
    let key = Key::es256();
    let issuer = Issuer::start(&[key.jwk("k")]);
    let port = up.address().port();
    let deny =
        |host: &str| json!({"url": format!("http://{host}:{port}/mcp"), "deny_private_addresses": true});
    let jwt = json!([{"issuer": issuer.url(), "audience": "gw", "deny_private_addresses": true}]);
    let hosts = [
        ("named", "localhost"),
        ("short", "127.1"),
        ("hex", "0x7f000001"),
        ("mapped", "[::ffff:127.0.0.1]"),
        ("zero", "0.0.0.0"),
    ];
    let config =
        hosts.iter().fold(Config::new(), |config, (name, host)| config.raw_upstream(name, deny(host)));
    let gateway = config.upstream("open", &up).set("auth", json!({"jwt": jwt})).start();
    for (name, _) in hosts {
        eventually(&format!("{name} is told"), || {
            let told = gateway.log().into_iter().find(|line| {
                line.contains("upstream_failed")
                    && line.contains(&format!("\"{name}\""))
                    && line.contains("deny_private_addresses")
            });
            told.map(drop)
        });
    }
    eventually("the issuer is told", || {
        gateway.warnings().iter().any(|line| line.contains("issuer_keys_failed")).then_some(())
    });
    assert!(
        issuer.seen("/jwks").is_empty() && issuer.seen("/.well-known/oauth-authorization-server").is_empty()
    );
    eventually("others are dialled", || {
        Client::modern(&gateway)
            .request("tools/list", "{}")
            .send()
            .text()
            .contains("open__echo")
            .then_some(())
    });
}

//! Whole files, good and bad: `tests/data/config`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use secrecy::ExposeSecret;

use super::*;

/// The variables of the files.
pub(crate) fn env(name: &str) -> Option<String> {
    let value = match name {
        "A" => "one",
        "EMPTY" => "",
        "LINES" => "hunter2\nhunter2",
        "SPACED" => "hunter2 hunter2 hunter2",
        "TOKEN" => "hunter2-hunter2-hunter2",
        "OTHER" => "swordfish-swordfish",
        _ => return None,
    };
    Some(value.to_owned())
}

fn good(text: &str) -> Loaded {
    parse(text, "gateway.yaml", &env).unwrap_or_else(|problems| panic!("{text}\n{problems}"))
}

fn bad(text: &str) -> String {
    match parse(text, "gateway.yaml", &env) {
        Ok(_) => panic!("is taken for good:\n{text}"),
        Err(problems) => problems.to_string(),
    }
}

fn good_file(name: &str) -> Loaded {
    let path = Path::new("tests/data/config/good").join(name);
    load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"))
}

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ext| ext == "yaml" || ext == "json")).collect();
    files.sort();
    assert!(!files.is_empty(), "{folder} is empty");
    files
}

/// Compares with what is kept in a file, or keeps it if `WAYPOST_BLESS` is set.
pub(crate) fn assert_kept(path: &Path, found: &str) {
    if std::env::var_os("WAYPOST_BLESS").is_some() {
        std::fs::write(path, found).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == found, "{} is not what came out (WAYPOST_BLESS=1 keeps it):\n{found}", path.display());
}

#[test]
fn bad_files_say_what_is_wrong_with_them() {
    for path in files("tests/data/config/bad") {
        let problems = match load(&path, &env) {
            Ok(_) => panic!("{} is taken for good", path.display()),
            Err(problems) => problems.to_string(),
        };
        assert_kept(&path.with_extension("txt"), &problems);
    }
}

#[test]
fn files_that_most_likely_mean_something_else_are_warned_of() {
    for path in files("tests/data/config/warned") {
        let loaded = load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"));
        let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
        assert!(warnings.iter().all(|warning| warning.starts_with("warning: ")), "{warnings:?}");
        assert!(!warnings.is_empty(), "{}", path.display());
        assert_kept(&path.with_extension("txt"), &warnings.join("\n"));
        let shown = format!("{warnings:?}{}", loaded.effective.to_yaml());
        assert!(!shown.contains("hunter2"), "{}: {shown}", path.display());
    }
}

#[test]
fn no_finding_shows_a_secret() {
    for path in files("tests/data/config/bad") {
        if let Err(problems) = load(&path, &env) {
            let shown = format!("{problems}{problems:?}");
            assert!(!shown.contains("hunter2"), "{}:\n{problems}", path.display());
            assert!(!shown.contains("swordfish"), "{}:\n{problems}", path.display());
        }
    }
}

#[test]
fn good_files_are_good() {
    for path in files("tests/data/config/good") {
        let loaded = load(&path, &env).unwrap_or_else(|problems| panic!("{problems}"));
        assert!(loaded.warnings.is_empty(), "{}: {:?}", path.display(), loaded.warnings);
    }
}

fn upstream<'a>(loaded: &'a Loaded, name: &str) -> &'a UpstreamConfig {
    loaded.config.upstreams.iter().find(|upstream| &*upstream.name == name).unwrap()
}

fn stdio<'a>(loaded: &'a Loaded, name: &str) -> &'a Stdio {
    match &upstream(loaded, name).transport {
        Transport::Stdio(stdio) => stdio,
        Transport::Http(_) => panic!("{name} is no child"),
    }
}

fn http<'a>(loaded: &'a Loaded, name: &str) -> &'a Http {
    match &upstream(loaded, name).transport {
        Transport::Http(http) => http,
        Transport::Stdio(_) => panic!("{name} is no URL"),
    }
}

fn texts(patterns: &[Pattern]) -> Vec<&str> {
    patterns.iter().map(Pattern::as_str).collect()
}

#[test]
fn the_least_file_has_every_default() {
    let config = good_file("least.yaml").config;
    assert_eq!(config.listen.to_string(), "127.0.0.1:8080");
    assert_eq!(config.admin.unwrap().to_string(), "127.0.0.1:9090");
    assert_eq!((config.demo, config.page_size, config.instructions), (None, None, None));
    assert!(config.upstreams.is_empty());
    assert_eq!(config.clients.len(), 1);
    assert!(config.clients[0].is_anonymous && &*config.clients[0].name == "anonymous");
    assert_eq!((config.limits.body, config.limits.message), (16 << 20, 64 << 20));
    assert_eq!((config.limits.connections, config.limits.sessions, config.limits.depth), (4096, 10_000, 128));
    assert_eq!((config.limits.list_items, config.limits.list_pages), (10_000, 1_000));
    assert_eq!((config.limits.header_timeout, config.limits.body_timeout), (seconds(10), seconds(30)));
    assert_eq!(config.server_info, ServerInfo::default());
    assert_eq!(config.clients[0].rules.extensions, None);
    assert!(config.limits.edge.is_none() && config.sessions.key.is_none() && !config.reveal_denied);
    let naming = Naming { separator: "__".into(), max_length: 64, charset: Charset::Strict };
    assert_eq!(config.naming, naming);
    assert_eq!((config.sessions.idle_timeout, config.sessions.keep_alive), (seconds(1800), seconds(15)));
    assert_eq!((config.drain_timeout, config.log.level.as_str()), (seconds(30), "info"));
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn the_full_file_says_everything_otherwise() {
    let loaded = good_file("full.yaml");
    let config = &loaded.config;
    assert_eq!(config.listen.to_string(), "0.0.0.0:8443");
    assert_eq!((config.admin, config.demo.unwrap().to_string()), (None, "127.0.0.1:8180".into()));
    let names: Vec<(&str, usize)> =
        config.upstreams.iter().map(|upstream| (&*upstream.name, upstream.index)).collect();
    assert_eq!(names, [("time", 0), ("github", 1), ("plain", 2)]);

    let time = upstream(&loaded, "time");
    assert_eq!((time.prefix.as_str(), time.era, time.timeout), ("time__", None, seconds(20)));
    assert_eq!(texts(&time.rules.tools.deny), ["drop"]);
    assert_eq!(stdio(&loaded, "time").cwd, Some("tests/data/config/good/work".into()));

    let github = upstream(&loaded, "github");
    assert_eq!(
        (github.prefix.as_str(), github.era, github.timeout),
        ("gh__", Some(Era::Modern), seconds(30))
    );
    assert_eq!((github.connect_timeout, github.list_timeout), (seconds(5), seconds(6)));
    assert_eq!((github.grace, github.refresh), (seconds(0), seconds(0)));
    assert_eq!(texts(github.rules.tools.allow.as_ref().unwrap()), ["get_*", "list_*"]);
    assert_eq!(texts(&github.rules.tools.deny), ["*secret*"]);
    let rate = Rate { count: 60, period: seconds(60) };
    assert_eq!(github.limits, CallLimits { rate: Some(rate), burst: Some(10), concurrency: Some(8) });
    assert_eq!(http(&loaded, "github").kind, Some(HttpKind::Streamable));
    let headers = &http(&loaded, "github").headers;
    assert_eq!(headers[0].0, "authorization");
    assert_eq!(headers[0].1.expose_secret(), "Bearer hunter2-hunter2-hunter2");
    assert_eq!(
        (upstream(&loaded, "plain").prefix.as_str(), upstream(&loaded, "plain").era),
        ("", Some(Era::Legacy))
    );

    let clients: Vec<(&str, usize)> =
        config.clients.iter().map(|client| (&*client.name, client.tokens.len())).collect();
    assert_eq!(clients, [("alice", 2), ("ci", 2), ("jwt:login.example.com/t", 0), ("anonymous", 0)]);
    assert_eq!(config.clients[0].tokens[0].digest[..4], [0x9f, 0x86, 0xd0, 0x81]);
    assert_eq!(config.clients[0].tokens[1], sha256("swordfish-swordfish"));
    assert_eq!(config.clients[1].tokens, [sha256("a-token-from-a-file"), sha256("hunter2-hunter2-hunter2")]);
    assert!(
        config.clients[3].rules.tools.admits("time__now")
            && !config.clients[3].rules.tools.admits("gh__get_x")
    );

    let layers: Vec<_> =
        config.clients[3].layers().map(|layer| (layer.section, layer.name, layer.rules.line)).collect();
    assert_eq!(layers, [("roles", "reader", 83), ("roles", "quiet", 88), ("clients", "anonymous", 44)]);
    let reader = &config.roles[0].rules;
    assert_eq!(texts(reader.tools.allow.as_ref().unwrap()), ["gh__get_*", "time__*"]);
    assert_eq!((reader.tools.deny[0].as_str(), reader.tools.deny[0].line()), ("*_secret*", 84));
    assert!(reader.extensions.is_some() && !config.clients[3].is_open() && config.roles[1].rules.is_open());
    assert_eq!(&*config.file, "tests/data/config/good/full.yaml");

    let [issuer] = config.jwt.as_slice() else { panic!("{:?}", config.jwt) };
    assert_eq!((issuer.group.0, &*issuer.group.1), (2, "jwt:login.example.com/t"));
    assert!(config.clients[2].is_group && config.clients[2].name == issuer.group.1);
    assert_eq!(issuer.algorithms, [JwtAlgorithm::Es256]);
    assert_eq!((issuer.clock_skew, issuer.refresh), (seconds(5), seconds(300)));
    assert_eq!(config.public_url.as_ref().map(Url::as_str), Some("https://mcp.example.com/mcp"));

    assert_eq!(config.limits.edge.as_ref().unwrap().burst, Some(20));
    assert_eq!(config.sessions.key.as_ref().unwrap().expose_secret(), "hunter2-hunter2-hunter2");
    assert_eq!(config.allowed_hosts, ["mcp.example.com"]);
    assert_eq!(config.allowed_origins, ["https://app.example.com"]);
    assert_eq!((config.page_size, config.reveal_denied, config.drain_timeout), (Some(50), true, seconds(5)));
    assert_eq!(config.instructions.as_deref(), Some("Be kind."));
    assert_eq!((config.server_info.name.as_str(), config.server_info.version.as_str()), ("acme", "7"));
    assert_eq!(config.server_info.title.as_deref(), Some("Tools of Acme"));
    let icons = &config.server_info.icons;
    assert_eq!((icons.len(), icons[0].theme, icons[0].sizes.len()), (2, Some("dark"), 2));
    assert_eq!(texts(github.rules.extensions.as_ref().unwrap().allow.as_ref().unwrap()), ["com.example/*"]);
    assert_eq!(texts(&config.clients[1].rules.extensions.as_ref().unwrap().deny), ["*"]);
    assert_eq!(config.log, Log { format: LogFormat::Json, level: "info,waypost=debug".into() });
    let naming = Naming { separator: "__".into(), max_length: 128, charset: Charset::Any };
    assert_eq!(config.naming, naming);
}

fn sha256(text: &str) -> Token {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes());
    Token { digest: digest.as_ref().try_into().unwrap(), expires: None }
}

#[test]
fn the_transport_of_a_url_is_found_out_unless_it_is_said() {
    let kind_of = |more: &str| {
        let loaded = good(&format!("upstreams: {{a: {{url: \"http://127.0.0.1/x\"{more}}}}}"));
        http(&loaded, "a").kind
    };
    for (more, kind) in [
        ("", None),
        (", transport: auto", None),
        (", type: http", None),
        (", transport: http", Some(HttpKind::Streamable)),
        (", transport: sse, era: legacy", Some(HttpKind::Sse)),
        (", type: sse", Some(HttpKind::Sse)),
        (", type: sse, transport: sse", Some(HttpKind::Sse)),
    ] {
        assert_eq!(kind_of(more), kind, "{more}");
    }
}

#[test]
fn a_pasted_block_of_another_program_works() {
    let loaded = good_file("claude_desktop.json");
    assert_eq!(
        stdio(&loaded, "filesystem").args,
        ["-y", "@modelcontextprotocol/server-filesystem", "/srv/shared"]
    );
    assert_eq!(http(&loaded, "github").url.as_str(), "https://api.githubcopilot.com/mcp/");
    assert_eq!(loaded.config.upstreams.len(), 2);
}

#[test]
fn blocks_of_editors_work() {
    let loaded = load(Path::new("tests/data/config/warned/vs_code.json"), &env).unwrap();
    assert_eq!(http(&loaded, "github").headers[0].1.expose_secret(), "Bearer hunter2-hunter2-hunter2");
    assert_eq!(stdio(&loaded, "memory").env[0].1.expose_secret(), "one/memory");
    let loaded = load(Path::new("tests/data/config/warned/cline.json"), &env).unwrap();
    assert!(upstream(&loaded, "files").rules.tools.admits("anything"));
    let servers = good("servers: {a: {command: x}}\n");
    let upstreams = good("upstreams: {a: {command: x}}\n");
    assert_eq!(servers.config.upstreams[0].name, upstreams.config.upstreams[0].name);
}

#[test]
fn a_header_may_be_empty_where_that_is_said() {
    for value in ["${EMPTY:-}", "${UNSET:-}", ""] {
        let loaded = good(&format!("upstreams: {{a: {{url: 'http://x/', headers: {{X: '{value}'}}}}}}\n"));
        assert_eq!(http(&loaded, "a").headers[0].1.expose_secret(), "", "{value}");
        for name in ["Authorization", "authorization"] {
            let text = format!("upstreams: {{a: {{url: 'http://x/', headers: {{{name}: '{value}'}}}}}}\n");
            assert!(bad(&text).contains("holds no credential"), "{text}");
        }
    }
    let problems = bad("upstreams: {a: {url: 'http://x/', headers: {X: '${EMPTY}'}}}\n");
    assert!(problems.contains("write `${EMPTY:-}` if empty is meant"), "{problems}");
    let problems = bad("upstreams: {a: {url: 'http://x/', headers: {Authorization: '${EMPTY}'}}}\n");
    assert!(!problems.contains(":-}"), "{problems}");
}

#[test]
fn a_program_whose_path_has_blanks_is_no_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("my server");
    std::fs::write(&program, "").unwrap();
    for command in [program.display().to_string(), "./my server".to_owned()] {
        let cwd = folder.path().display();
        let loaded = good(&format!("upstreams: {{a: {{command: '{command}', cwd: '{cwd}'}}}}\n"));
        assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    }
}

#[test]
fn anchors_and_merge_keys_work() {
    let loaded = good_file("anchors.yaml");
    let commands = ["a", "b", "c"].map(|name| stdio(&loaded, name).command.as_str());
    assert_eq!(commands, ["x", "y", "x"]);
    for name in ["a", "b", "c"] {
        assert_eq!(upstream(&loaded, name).timeout, seconds(20));
        assert_eq!(texts(&upstream(&loaded, name).rules.tools.deny), ["drop"]);
    }
}

#[test]
fn defaults_complete_mappings_key_by_key() {
    let loaded = good(
        "defaults: {tools: {allow: [a], deny: [b]}, limits: {rate: 5/s, concurrency: 2}, era: legacy}\n\
         upstreams: {x: {command: x, tools: {allow: []}, limits: {concurrency: 9}}, y: {command: y}}\n",
    );
    let (x, y) = (upstream(&loaded, "x"), upstream(&loaded, "y"));
    assert_eq!(
        (x.rules.tools.allow.as_deref(), texts(&x.rules.tools.deny)),
        (Some([].as_slice()), vec!["b"])
    );
    assert_eq!(texts(y.rules.tools.allow.as_ref().unwrap()), ["a"]);
    let rate = Some(Rate { count: 5, period: seconds(1) });
    assert_eq!((x.limits.rate, x.limits.concurrency), (rate, Some(9)));
    assert_eq!((y.limits.rate, y.limits.concurrency, y.era), (rate, Some(2), Some(Era::Legacy)));
}

#[test]
fn cfg_01_a_misspelled_key_is_refused_with_its_place_and_the_nearest_key() {
    for (text, place, help) in [
        ("upstreems: {}\n", "1:1", "`upstreams`"),
        ("upstreams:\n  a:\n    comand: x\n", "3:5", "`command`"),
        ("upstreams: {}\nauth:\n  anonimous: true\n", "3:3", "`anonymous`"),
        ("upstreams: {}\nclients:\n  a:\n    tokns: []\n", "4:5", "`tokens`"),
        ("upstreams: {a: {command: x, tools: {denny: [x]}}}\n", "1:37", "`deny`"),
        ("upstreams: {a: {command: x, limits: {concurency: 1}}}\n", "1:38", "`concurrency`"),
    ] {
        let problems = bad(text);
        assert!(problems.contains(&format!("--> gateway.yaml:{place}\n")), "{problems}");
        assert!(problems.contains(&format!("did you mean {help}?")), "{problems}");
        assert_eq!(problems.matches("error: ").count(), 1, "{problems}");
    }
}

#[test]
fn cfg_01_every_problem_comes_at_once() {
    let Err(problems) = load(Path::new("tests/data/config/bad/wrong_types.yaml"), &env) else {
        panic!("is good")
    };
    let lines: Vec<usize> =
        problems.as_slice().iter().map(|problem| problem.place.as_ref().unwrap().line).collect();
    assert!(lines.is_sorted());
    assert_eq!(lines.into_iter().collect::<std::collections::BTreeSet<_>>().len(), 11);
}

#[test]
fn cfg_02_variables_are_filled_in_value_by_value() {
    let with = |value: &str| format!("upstreams: {{a: {{command: '{value}'}}}}\n");
    let command = |value: &str| stdio(&good(&with(value)), "a").command.clone();
    assert_eq!(command("${A}${A}"), "oneone");
    assert_eq!(command("$${NOT}"), "${NOT}");
    assert_eq!(command("${X:-dflt}"), "dflt");
    assert_eq!(command("a$b"), "a$b");
    assert_eq!(command("${LINES}"), "hunter2\nhunter2");
    assert!(bad(&with("${UNSET}")).contains("the variable `UNSET`, in `command`, is not set"));
}

#[test]
fn cfg_02_an_unset_or_empty_variable_is_no_secret() {
    for (token, wanted) in [
        ("${UNSET}", "`UNSET`"),
        ("${EMPTY}", "`EMPTY`"),
        ("{env: UNSET}", "`UNSET`"),
        ("{env: EMPTY}", "`EMPTY`"),
    ] {
        let problems = bad(&format!("upstreams: {{}}\nclients:\n  a:\n    tokens:\n      - {token}\n"));
        assert!(problems.contains(wanted) && problems.contains(":5:"), "{problems}");
    }
    let problems = bad("upstreams: {a: {url: 'http://x/', headers: {Authorization: 'Bearer ${EMPTY}'}}}\n");
    assert!(
        problems.contains("the variable `EMPTY`, in `headers.Authorization`, is set but empty"),
        "{problems}"
    );
    let loaded = good("upstreams: {a: {command: x, env: {B: '${EMPTY:-}'}}}\n");
    assert_eq!(stdio(&loaded, "a").env[0].1.expose_secret(), "");
}

#[test]
fn what_a_variable_holds_is_never_yaml() {
    let env = |_: &str| Some("x, deny: [], \"}: ${A}".to_owned());
    let loaded =
        parse("upstreams: {a: {command: x, args: ['${V}', \"${V}\"]}}\n", "gateway.yaml", &env).unwrap();
    assert_eq!(stdio(&loaded, "a").args, ["x, deny: [], \"}: ${A}"; 2]);
}

#[test]
fn pol_04_an_empty_allow_is_nothing_and_no_allow_is_everything() {
    let tools = |tools: &str| {
        let loaded = good(&format!("upstreams: {{a: {{command: x, tools: {tools}}}}}\n"));
        upstream(&loaded, "a").rules.tools.clone()
    };
    assert!(tools("{}").admits("echo"));
    assert!(tools("{deny: []}").admits("echo"));
    assert!(!tools("{allow: []}").admits("echo"));
    for allow in ["null", "", "['']"] {
        assert!(
            bad(&format!("upstreams: {{a: {{command: x, tools: {{allow: {allow}}}}}}}\n"))
                .contains("`allow`")
        );
    }
}

#[test]
fn pol_07_rules_that_can_never_match_are_told() {
    let loaded = good("upstreams: {a: {command: x, tools: {allow: [echo], deny: [echo]}}}\n");
    assert!(!upstream(&loaded, "a").rules.tools.admits("echo"));
    assert!(loaded.warnings.iter().all(|warning| warning.message == "`echo` is both allowed and denied"));
    assert_eq!(loaded.warnings.len(), 2);
    // Brackets are no wildcards here, so such a pattern is no broken one: it is warned of.
    let loaded = good("upstreams: {a: {command: x, tools: {allow: ['**[']}}}\n");
    assert_eq!(loaded.warnings[0].message, "`**[` has no other wildcards than `*` and `?`");
    let problems = bad(
        "upstreams: {a: {command: x}}\nclients: {c: {tokens: [{env: TOKEN}], tools: {deny: ['b__*']}}}\n",
    );
    assert!(problems.contains("no upstream is called `b`"), "{problems}");
}

#[test]
fn pol_07_patterns_of_disabled_and_mapped_upstreams_are_known() {
    good(
        "upstreams: {off: {command: x, disabled: true}, my.up: {command: y}, gh: {command: z, prefix: g}}\n\
         clients: {c: {tokens: [{env: TOKEN}], tools: {allow: ['off__*', 'my_up__a', 'g__b', '*__c', '?__d', plain]}}}\n",
    );
    good(
        "upstreams: {a: {command: x, prefix: ''}}\nclients: {c: {tokens: [{env: TOKEN}], tools: {allow: [b__c]}}}\n",
    );
}

#[test]
fn pol_08_names_are_what_is_written() {
    let loaded = good_file("names_as_written.yaml");
    let allow = |name| texts(upstream(&loaded, name).rules.tools.allow.as_ref().unwrap());
    assert_eq!(allow("flow"), ["no", "123", "plain", "quoted", "1.0", "true", "~x", "0x1f", "1_000"]);
    assert_eq!(allow("block"), ["no", "123", "plain", "folded"]);
    assert_eq!(stdio(&loaded, "block").args, ["no", "1.0", "0755", "-y", "true"]);
    let env = &stdio(&loaded, "block").env;
    let env: Vec<(&str, &str)> =
        env.iter().map(|(name, value)| (name.as_str(), value.expose_secret())).collect();
    assert_eq!(env, [("A", "1"), ("B", "true"), ("C", "no"), ("D", "1.50"), ("E", "")]);
}

#[test]
fn who_is_let_in_without_a_token() {
    let client = "clients: {c: {tokens: [{env: TOKEN}]}}";
    for (rest, wanted) in [
        ("", true),
        (client, false),
        ("auth: {anonymous: false}", false),
        ("auth: {anonymous: '${X:-true}'}", true),
        ("listen: 0.0.0.0:1\nauth: {anonymous: true}", true),
        ("listen: 0.0.0.0:1\nclients: {c: {tokens: [{env: TOKEN}]}}", false),
        ("clients: {anonymous: {tools: {allow: []}}}", true),
        ("clients: {}", true),
    ] {
        let loaded = good(&format!("upstreams: {{}}\n{rest}\n"));
        assert_eq!(loaded.config.clients.last().is_some_and(|client| client.is_anonymous), wanted, "{rest}");
    }
    for rest in [
        "listen: 0.0.0.0:1",
        "listen: '[::]:1'",
        "listen: 0.0.0.0:1\nclients: {anonymous: {}}",
        "listen: 10.0.0.1:1\nclients: {}",
    ] {
        assert!(
            bad(&format!("upstreams: {{}}\n{rest}\n")).contains("anybody on the network could call"),
            "{rest}"
        );
    }
    let loaded = good("upstreams: {}\nauth: {anonymous: false}\n");
    assert!(loaded.warnings[0].message.contains("nobody can call"));
}

#[test]
fn prefixes_end_in_the_separator_once() {
    let prefix = |keys: &str| {
        let loaded = good(&format!("upstreams: {{a.b: {{command: x{keys}}}}}\nnaming: {{separator: _}}\n"));
        loaded.config.upstreams[0].prefix.clone()
    };
    assert_eq!(
        [prefix(""), prefix(", prefix: c"), prefix(", prefix: c_"), prefix(", prefix: ''")],
        ["a.b_", "c_", "c_", ""]
    );
}

#[test]
fn equal_prefixes_are_warned_of() {
    let warnings = |text: &str| -> Vec<String> {
        good(text).warnings.into_iter().map(|warning| warning.message).collect()
    };
    assert!(
        warnings("upstreams: {a: {command: x, disabled: true}, b: {command: x, prefix: a}}\n").is_empty()
    );
    assert_eq!(
        warnings("upstreams: {a: {command: x, prefix: ''}, b: {command: x, prefix: ''}, c: {command: x}}\n"),
        ["`a` and `b` both have no prefix"]
    );
    assert_eq!(
        warnings("upstreams: {a: {command: x}, b: {command: x, prefix: a}}\n"),
        ["`a` and `b` have the same prefix `a__`"]
    );
}

#[test]
fn the_hash_is_of_what_is_said_and_not_of_how() {
    let hash = |text: &str| good(text).config.hash;
    let base = hash("upstreams: {a: {command: x}}\n");
    assert_eq!(base.len(), 16);
    assert_eq!(base, hash("# comment\nupstreams:\n  a:\n    \"command\": 'x'  # more\n"));
    assert_ne!(base, hash("upstreams: {a: {command: y}}\n"));
    assert_ne!(base, hash("upstreams: {b: {command: x}}\n"));
    let with = |value: &'static str| {
        let env = move |_: &str| Some(value.to_owned());
        let text = "upstreams: {}\nclients: {c: {tokens: [{env: T}]}}\nsessions: {key: {env: T}}\n";
        parse(text, "gateway.yaml", &env).unwrap().config.hash
    };
    assert_ne!(with("swordfish-swordfish"), with("swordfish-swordfisi"));
}

#[test]
fn a_file_that_is_too_large_or_too_deep_is_refused() {
    let wide = format!("upstreams: {{a: {{command: x, args: [{}]}}}}\n", "x,".repeat(100_000));
    let deep = format!("upstreams: {}1{}\n", "[".repeat(40), "]".repeat(40));
    for text in [wide, deep] {
        assert!(bad(&text).contains("the file is too large, or nests too deep"));
    }
}

#[test]
fn the_file_of_a_secret_may_be_missing_or_empty_or_huge() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("empty"), "\n").unwrap();
    std::fs::write(folder.path().join("huge"), "x".repeat(100_000)).unwrap();
    std::fs::write(folder.path().join("crlf"), "a-token-from-a-file\r\n").unwrap();
    let load = |file: &str| {
        let path = folder.path().join("gateway.yaml");
        std::fs::write(&path, format!("upstreams: {{}}\nclients: {{c: {{tokens: [{{file: {file}}}]}}}}\n"))
            .unwrap();
        load(&path, &env)
    };
    assert_eq!(load("crlf").unwrap().config.clients[0].tokens, [sha256("a-token-from-a-file")]);
    assert!(load("empty").unwrap_err().to_string().contains("is empty"));
    assert!(load("huge").unwrap_err().to_string().contains("larger than 64 KiB"));
    assert!(load("nowhere").unwrap_err().to_string().contains("cannot read"));
}

//! Explanations, and that they say what the gateway does.

use proptest::prelude::*;

use super::*;

fn question(name: &str) -> Question {
    Question { topic: Topic::Listed(ListKind::Tools), name: name.into(), endpoint: None }
}

fn role(name: &str, tools: Filter) -> Arc<RoleConfig> {
    Arc::new(RoleConfig { name: name.into(), rules: Rules { tools, line: 7, ..Rules::default() } })
}

fn down() -> Offer {
    let now = Instant::now();
    let health = Health::Down {
        reason: "it exited".into(),
        since: now,
        retry_at: now + Duration::from_secs(9),
        failures: 1,
    };
    Offer { health, ..Offer::default() }
}

fn said(gateway: &Gateway, client: &str, name: &str) -> (Verdict, String) {
    let explanation = gateway.explain(client, &question(name)).unwrap();
    let obstacle = explanation.obstacle().map(|step| format!("{}: {}", step.check, step.text));
    (explanation.verdict, obstacle.unwrap_or_default())
}

#[tokio::test]
async fn an_explanation_names_what_stands_in_the_way() {
    let readers =
        Filter { allow: Some(vec![Pattern::on_line("*read", 9)]), deny: vec![], ..Filter::default() };
    let gateway =
        gateway(vec![scripted("a", ready(&["read", "write", "drop"])), scripted("b", down())], |config| {
            config.clients[0].roles = vec![role("readers", readers)];
            config.clients[0].limits.concurrency = Some(3);
        });
    refreshed(&gateway).await;
    for (name, verdict, obstacle) in [
        ("a__read", Verdict::Allowed, ""),
        ("a__write", Verdict::Denied, "roles.readers.tools: nothing in `allow` matches `a__write`"),
        ("a__drop", Verdict::Denied, "upstreams.a.tools: `deny` has `drop`"),
        (
            "a__raed",
            Verdict::Unknown,
            "list: `a` has no tool `raed` among the 3 that it lists; did you mean `a__read`?",
        ),
        ("read", Verdict::Unknown, "list: no upstream has a tool of this name; did you mean `a__read`?"),
        (
            "b__write",
            Verdict::Unknown,
            "list: what `b` lists is not known: it is down: it exited; the next try is in 8 s",
        ),
        (
            "b__read",
            Verdict::Unavailable,
            "list: what `b` lists is not known: it is down: it exited; the next try is in 8 s",
        ),
    ] {
        assert_eq!(said(&gateway, "open", name), (verdict, obstacle.to_owned()), "{name}");
    }
    let explanation = gateway.explain("open", &question("a__write")).unwrap();
    let steps: Vec<_> =
        explanation.steps.iter().map(|step| (&*step.check, step.outcome, step.place.as_deref())).collect();
    assert_eq!(
        steps,
        [
            ("client", StepOutcome::Note, None),
            ("list", StepOutcome::Pass, None),
            ("upstreams.a.tools", StepOutcome::Pass, None),
            ("roles.readers.tools", StepOutcome::Stop, Some("gateway.yaml:9")),
            ("clients.open.tools", StepOutcome::Pass, None),
            ("upstream", StepOutcome::Pass, None),
            ("clients.open.limits", StepOutcome::Note, None),
        ]
    );
    assert_eq!(explanation.steps[6].text, "3 in flight");
    assert_eq!((explanation.upstream.as_deref(), explanation.native.as_deref()), (Some("a"), Some("write")));
}

#[tokio::test]
async fn a_client_that_is_not_there_is_told_from_those_that_are() {
    let gateway = gateway(vec![scripted("a", ready(&[])), scripted("b", ready(&[]))], |_| {});
    let refused = gateway.explain("alcie", &question("x")).unwrap_err();
    assert_eq!(refused.to_string(), "no client is called `alcie`; there are: open, reader");
    let all = gateway.explain_all(&question("x")).unwrap();
    assert_eq!(all.iter().map(|one| &*one.client).collect::<Vec<_>>(), ["open", "reader"]);
}

#[tokio::test]
async fn what_was_left_out_of_a_list_is_found_again() {
    let gateway = gateway(vec![scripted("a", ready(&["x"])), scripted("b", ready(&["x"]))], |config| {
        for upstream in &mut config.upstreams {
            Arc::make_mut(upstream).prefix = "same__".into();
        }
    });
    refreshed(&gateway).await;
    let explanation = gateway.explain("open", &question("same__x")).unwrap();
    assert_eq!((explanation.verdict, explanation.upstream.as_deref()), (Verdict::Allowed, Some("a")));
}

#[tokio::test]
async fn a_resource_is_judged_in_every_spelling() {
    let mut offer = ready(&[]);
    let text = Raw::from_value(&serde_json::json!({"uriTemplate": "file:///{+path}", "name": "files"}));
    offer.lists.templates = List {
        entries: vec![Listed { name: "file:///{+path}".into(), text }],
        is_served: true,
        ..List::default()
    };
    let gateway = gateway(vec![scripted("a", offer), scripted("b", ready(&[]))], |config| {
        config.clients[0].rules.resources.deny = vec![Pattern::on_line("file:///secret*", 12)];
    });
    refreshed(&gateway).await;
    for (uri, verdict, obstacle) in [
        ("file:///a", Verdict::Allowed, ""),
        ("file:///secret", Verdict::Denied, "`deny` has `file:///secret*`"),
        ("file:///%73ecret", Verdict::Denied, "another spelling of the URI is denied or not allowed"),
        ("other:x", Verdict::Unknown, "no upstream has a resource of this name"),
    ] {
        let asked = Question { topic: Topic::Listed(ListKind::Resources), name: uri.into(), endpoint: None };
        let explanation = gateway.explain("open", &asked).unwrap();
        assert_eq!(explanation.verdict, verdict, "{uri}");
        assert_eq!(explanation.obstacle().map(|step| &*step.text).unwrap_or_default(), obstacle, "{uri}");
    }
}

#[tokio::test]
async fn an_extension_is_explained_by_the_rules_that_hide_it() {
    let declaring = |text: &str| {
        let capabilities = Raw::from_value(&serde_json::from_str(text).unwrap());
        Offer { capabilities: Some(capabilities), ..ready(&["read"]) }
    };
    let some =
        r#"{"extensions":{"com.example/search":{},"com.example/admin":{},"io.modelcontextprotocol/ui":{}}}"#;
    let shut = r#"{"extensions":{"org.example/shut":{},"com.example/admin":{}}}"#;
    let (a, b) = (declaring(some), declaring(shut));
    let gateway = gateway(vec![scripted("a", a), scripted("b", b)], |config| {
        let extensions =
            Filter { allow: None, deny: vec![Pattern::on_line("*/admin", 5)], ..Filter::default() };
        Arc::make_mut(&mut config.upstreams[0]).rules.extensions = Some(extensions);
        let closed = &mut Arc::make_mut(&mut config.upstreams[1]).rules;
        (closed.tools.deny, closed.line) = (vec![Pattern::from("drop")], 8);
        config.clients[0].roles =
            vec![role("nobody", Filter { allow: Some(vec![]), deny: vec![], ..Filter::default() })];
        config.clients[1].rules.tools = Filter::default();
    });
    refreshed(&gateway).await;
    let cannot = "its rules about tools, resources or prompts cannot judge an extension; say so here";
    for (client, id, verdict, check, text, place) in [
        ("reader", "com.example/search", Verdict::Allowed, "", "", None),
        ("reader", "io.modelcontextprotocol/ui", Verdict::Allowed, "", "", None),
        (
            "reader",
            "com.example/admin",
            Verdict::Denied,
            "upstreams.a.extensions",
            "`deny` has `*/admin`",
            Some("gateway.yaml:5"),
        ),
        (
            "reader",
            "org.example/shut",
            Verdict::Denied,
            "upstreams.b.extensions",
            cannot,
            Some("gateway.yaml:8"),
        ),
        (
            "open",
            "com.example/search",
            Verdict::Denied,
            "roles.nobody.extensions",
            cannot,
            Some("gateway.yaml:7"),
        ),
        (
            "open",
            "io.modelcontextprotocol/ui",
            Verdict::Denied,
            "lists",
            "the client sees nothing in the lists of `a`",
            None,
        ),
        (
            "reader",
            "com.example/none",
            Verdict::Unknown,
            "extensions",
            "no upstream declares an extension of this identifier",
            None,
        ),
    ] {
        let asked = Question::about("extension", id.into()).unwrap();
        let explanation = gateway.explain(client, &asked).unwrap();
        let obstacle = explanation.obstacle();
        let obstacle = obstacle.map(|step| (&*step.check, &*step.text, step.place.as_deref()));
        assert_eq!(explanation.verdict, verdict, "{client} {id}: {explanation:?}");
        assert_eq!(obstacle.unwrap_or(("", "", None)), (check, text, place), "{client} {id}");
        assert_eq!(explanation.kind, "extension");
    }
}

fn filter() -> impl Strategy<Value = Filter> {
    let pattern =
        prop::sample::select(vec!["a__*", "*read", "b__x", "*", "read", "x", "*r*", "a__drop", "?"]);
    let patterns = prop::collection::vec(pattern, 0..3)
        .prop_map(|texts| texts.into_iter().map(Pattern::from).collect::<Vec<_>>());
    (prop::option::of(patterns.clone()), patterns).prop_map(|(allow, deny)| Filter {
        allow,
        deny,
        ..Filter::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]
    #[test]
    fn an_explanation_never_disagrees_with_the_gateway(
        (of_a, of_role, of_client) in (filter(), filter(), filter()),
        is_b_down in any::<bool>(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let b = if is_b_down { down() } else { ready(&["read", "x"]) };
            let gateway = gateway(vec![scripted("a", ready(&["read", "write", "drop"])), scripted("b", b)], |config| {
                Arc::make_mut(&mut config.upstreams[0]).rules.tools = of_a;
                config.clients[0].roles = vec![role("r", of_role)];
                config.clients[0].rules.tools = of_client;
            });
            refreshed(&gateway).await;
            let listed = names_seen(&gateway, 0);
            for name in ["a__read", "a__write", "a__drop", "b__read", "b__x", "a__none", "read", ""] {
                let explanation = gateway.explain("open", &question(name)).unwrap();
                let done = match gateway.call(call(0, name)).await {
                    Ok(_) => Verdict::Allowed,
                    Err(refusal) => {
                        let said = [
                            (GatewayErrorKind::Denied, Verdict::Denied),
                            (GatewayErrorKind::Unavailable, Verdict::Unavailable),
                            (GatewayErrorKind::Unknown, Verdict::Unknown),
                        ];
                        said.into_iter().find(|(kind, _)| *kind == refusal.kind).unwrap().1
                    }
                };
                assert_eq!(explanation.verdict, done, "{name}");
                assert_eq!(explanation.obstacle().is_none(), done == Verdict::Allowed, "{explanation:?}");
                assert_eq!(listed.iter().any(|listed| listed == name), done == Verdict::Allowed, "{name}");
                if done == Verdict::Denied {
                    let obstacle = explanation.obstacle().unwrap();
                    assert!(obstacle.check.ends_with(".tools"), "{obstacle:?}");
                }
            }
        });
    }
}

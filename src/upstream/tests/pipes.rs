//! Servers on pipes: sizes, noise, deaths, process groups.

use serde_json::{Value, json};

use super::bench::{Bench, call, call_with_progress, text_of};

#[tokio::test]
async fn std_01_messages_of_any_size_pass_both_ways() {
    let bench = Bench::scripted(&json!({}));
    bench.ready().await;
    for size in [65_535, 65_537, (1 << 20) + 1, 8 << 20] {
        assert_eq!(bench.text("big", json!({"size": size})).await.unwrap().len(), size);
    }
    assert_eq!(bench.text("echo", json!({"text": "small"})).await.unwrap(), "small");
    let outcome = bench.run(call("fail", json!({})).call).await.unwrap();
    assert_eq!(outcome.answer().response.error_code(), Some(-32000));
    bench.stop().await;
}

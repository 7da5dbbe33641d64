//! What must reach nobody: one case for each way to write it.

use hourhand::outcome::{Reason, RunEnd};
use serde_json::json;

use crate::kit::{get, grants, lookups, name, run};
use crate::web::{Reply, Web};

/// A server that must not be reached, at a port that all of these name.
fn untouched() -> Web {
    Web::start(|_| Reply::text("reached"))
}

/// Everything that a manifest could allow of the loopback address, in the forms that the runner compares.
fn generous(port: u16) -> Vec<String> {
    let hosts = [
        "127.0.0.1",
        "127.0.0.2",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::127.0.0.1]",
        "[::ffff:0:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "10.0.0.1",
        "192.168.0.1",
        "172.16.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "192.0.0.192",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "224.0.0.1",
        "[ff02::1]",
        "255.255.255.255",
        "localhost",
        "inside.test",
        "metadata.test",
        "mapped.test",
        "nat64.test",
        "sixtofour.test",
        "mixed.test",
        "unspecified.test",
    ];
    hosts.iter().map(|host| format!("http://{host}:{port}")).collect()
}

/// One named case a URL (`{}` is the port) that is denied for its address, although the manifest allows its origin.
macro_rules! private {
    ($($name:ident: $url:literal,)+) => {
        $(#[tokio::test]
        async fn $name() {
            name("localhost", &[&["127.0.0.1", "::1"]]);
            name("inside.test", &[&["10.0.0.1"]]);
            name("metadata.test", &[&["169.254.169.254"]]);
            name("mapped.test", &[&["::ffff:127.0.0.1"]]);
            name("nat64.test", &[&["64:ff9b::127.0.0.1"]]);
            name("sixtofour.test", &[&["2002:7f00:1::1"]]);
            name("mixed.test", &[&["10.0.0.1", "127.0.0.1", "::1"]]);
            name("unspecified.test", &[&["0.0.0.0"]]);
            let server = untouched();
            let allow = generous(server.port());
            let allow: Vec<&str> = allow.iter().map(String::as_str).collect();
            let url = $url.replace("{}", &server.port().to_string());
            let ran = get(&grants(&allow, &[]), &url).await;
            assert_eq!(ran.error(), "Denied", "{url}\n{}", ran.log);
            assert!(ran.log.contains("[ceiling] private = [\""), "the line is named: {}", ran.log);
            assert_eq!(server.connections(), 0);
        })+
    };
}

private! {
    loopback: "http://127.0.0.1:{}/",
    loopback_elsewhere: "http://127.0.0.2:{}/",
    loopback_by_name: "http://localhost:{}/",
    loopback_in_decimal: "http://2130706433:{}/",
    loopback_in_hex: "http://0x7f000001:{}/",
    loopback_in_hex_parts: "http://0x7f.0x0.0x0.0x1:{}/",
    loopback_in_octal: "http://0177.0.0.01:{}/",
    loopback_in_one_octal_number: "http://017700000001:{}/",
    loopback_in_two_parts: "http://127.1:{}/",
    loopback_with_a_dot_at_its_end: "http://127.0.0.1.:{}/",
    loopback_mapped: "http://[::ffff:127.0.0.1]:{}/",
    loopback_mapped_in_hex: "http://[::ffff:7f00:1]:{}/",
    loopback_compatible: "http://[::127.0.0.1]:{}/",
    loopback_translated: "http://[::ffff:0:127.0.0.1]:{}/",
    loopback_by_nat64: "http://[64:ff9b::127.0.0.1]:{}/",
    loopback_by_6to4: "http://[2002:7f00:1::]:{}/",
    loopback_v6: "http://[::1]:{}/",
    loopback_v6_in_full: "http://[0:0:0:0:0:0:0:1]:{}/",
    unspecified: "http://0.0.0.0:{}/",
    unspecified_as_zero: "http://0:{}/",
    unspecified_v6: "http://[::]:{}/",
    private_10: "http://10.0.0.1:{}/",
    private_192: "http://192.168.0.1:{}/",
    private_172: "http://172.16.0.1:{}/",
    shared_by_a_provider: "http://100.64.0.1:{}/",
    metadata: "http://169.254.169.254:{}/latest/meta-data/",
    metadata_in_decimal: "http://2852039166:{}/latest/meta-data/",
    metadata_of_azure: "http://192.0.0.192:{}/",
    metadata_v6: "http://[fd00:ec2::254]:{}/",
    link_local_v6: "http://[fe80::1]:{}/",
    multicast: "http://224.0.0.1:{}/",
    multicast_v6: "http://[ff02::1]:{}/",
    broadcast: "http://255.255.255.255:{}/",
    a_name_for_a_private_address: "http://inside.test:{}/",
    a_name_in_capitals: "http://INSIDE.Test:{}/",
    a_name_with_a_dot_at_its_end: "http://inside.test.:{}/",
    a_name_for_metadata: "http://metadata.test:{}/",
    a_name_for_a_mapped_address: "http://mapped.test:{}/",
    a_name_for_nat64: "http://nat64.test:{}/",
    a_name_for_6to4: "http://sixtofour.test:{}/",
    a_name_for_several_private_addresses: "http://mixed.test:{}/",
    a_name_for_the_unspecified_address: "http://unspecified.test:{}/",
}

/// One named case a URL that is not the one allowed origin, `http://api.example.com:{}`. Its name leads to the server that must not
/// be reached, and so would all others.
macro_rules! elsewhere {
    ($($name:ident: $url:literal => $error:literal,)+) => {
        $(#[tokio::test]
        async fn $name() {
            for host in ["api.example.com", "api.example.com.evil.test", "evilapi.example.com", "example.com", "evil.test"] {
                name(host, &[&["127.0.0.1"]]);
            }
            let server = untouched();
            let allow = format!("http://api.example.com:{}", server.port());
            let url = $url.replace("{}", &server.port().to_string());
            let ran = get(&grants(&[&allow], &["127.0.0.0/8"]), &url).await;
            assert_eq!(ran.error(), $error, "{url}\n{}", ran.log);
            assert_eq!(server.connections(), 0);
            for host in ["api.example.com", "api.example.com.evil.test", "evilapi.example.com", "example.com", "evil.test"] {
                assert_eq!(lookups(host), 0, "{host} was looked up");
            }
        })+
    };
}

elsewhere! {
    a_suffix_of_somebody_else: "http://api.example.com.evil.test:{}/" => "Denied",
    a_prefix_of_somebody_else: "http://evilapi.example.com:{}/" => "Denied",
    a_name_above: "http://example.com:{}/" => "Denied",
    an_address_that_nobody_named: "http://127.0.0.1:{}/" => "Denied",
    another_scheme: "https://api.example.com:{}/" => "Denied",
    another_port: "http://api.example.com/" => "Denied",
    its_name_as_user: "http://api.example.com@evil.test:{}/" => "Invalid",
    its_name_and_port_as_user: "http://api.example.com:{}@evil.test/" => "Invalid",
    a_user_at_the_right_host: "http://root@api.example.com:{}/" => "Invalid",
    a_backslash_before_another_host: "http://evil.test:{}\\@api.example.com/" => "Denied",
    a_line_end_in_the_host: "http://api.example.com:{}\r\nHost: evil.test/" => "Invalid",
    a_port_that_wraps_around: "http://api.example.com:6553680/" => "Invalid",
    a_percent_sign_in_the_host: "http://evil.test%2f.api.example.com:{}/" => "Invalid",
    no_host: "http://:{}/" => "Invalid",
}

#[tokio::test]
async fn without_a_manifest_nothing_is_reached_and_the_missing_line_is_named() {
    let server = untouched();
    let url = server.url("/secret-path?token=hush");
    let ran = run(&grants(&[], &["127.0.0.0/8"]), json!([{"url": url, "must": true}])).await;
    let line = format!("fetch.toml: [allow] http = [\"http://127.0.0.1:{}\"]", server.port());
    match &ran.end {
        RunEnd::Failed { reason: Reason::Denied, message, .. } => {
            assert!(message.contains(&line), "{message}");
        }
        other => panic!("{other:?}"),
    }
    assert!(ran.log.contains(&line), "{}", ran.log);
    assert!(!ran.log.contains("hush"), "paths and queries are nobody's business: {}", ran.log);
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn the_missing_line_keeps_what_is_allowed_already() {
    let ran = get(&grants(&["https://a.test", "http://b.test:81"], &[]), "https://c.test:8443/").await;
    let line = r#"http = ["https://a.test", "http://b.test:81", "https://c.test:8443"]"#;
    assert!(ran.log.contains(line), "{}", ran.log);
}

#[tokio::test]
async fn a_denied_guest_that_is_still_writing_sees_the_denial() {
    let server = untouched();
    let asks = json!([{"method": "POST", "url": server.url("/"), "body_bytes": 3_000_000}]);
    let ran = run(&grants(&[], &[]), asks).await;
    assert_eq!(ran.error(), "Denied");
}

#[tokio::test]
async fn a_name_that_changes_its_address_after_the_look_is_connected_to_as_it_was_looked_up() {
    let server = Web::start(|_| Reply::text("hello"));
    name("rebinding.test", &[&["127.0.0.1"], &["127.0.0.2"]]);
    let origin = format!("http://rebinding.test:{}", server.port());
    let grants = grants(&[&origin], &["127.0.0.1/32"]);
    let first = get(&grants, &origin).await;
    assert_eq!(
        (&first.got()[0]["body"], lookups("rebinding.test")),
        (&json!("hello"), 1),
        "one look-up a request"
    );
    let second = get(&grants, &origin).await;
    assert_eq!((second.error().as_str(), lookups("rebinding.test")), ("Denied", 2), "looked at anew");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn of_several_addresses_only_the_allowed_ones_are_tried() {
    let server = Web::start(|_| Reply::text("hello"));
    name("several.test", &[&["10.0.0.1", "169.254.169.254", "127.0.0.1"]]);
    let origin = format!("http://several.test:{}", server.port());
    let ran = get(&grants(&[&origin], &["127.0.0.1/32"]), &origin).await;
    assert_eq!(ran.got()[0]["body"], "hello");
}

#[tokio::test]
async fn a_redirect_is_looked_at_like_a_request() {
    let inside = untouched();
    for (to, error) in [
        (inside.url("/"), "Denied"),
        ("http://169.254.169.254/latest/meta-data/".to_owned(), "Denied"),
        ("http://metadata.test/".to_owned(), "Denied"),
        ("file:///etc/passwd".to_owned(), "Invalid"),
        ("gopher://127.0.0.1/".to_owned(), "Invalid"),
    ] {
        name("metadata.test", &[&["169.254.169.254"]]);
        let location = to.clone();
        let server = Web::start(move |_| Reply::redirect(location.clone()));
        let origin = format!("http://127.0.0.1:{}", server.port());
        let grants = grants(&[&origin, "http://169.254.169.254", "http://metadata.test"], &["127.0.0.0/8"]);
        let ran = run(&grants, json!([{"url": origin, "redirects": 3}])).await;
        assert_eq!(ran.error(), error, "{to}: {}", ran.log);
        assert_eq!(server.seen().len(), 1);
    }
    assert_eq!(inside.connections(), 0);
}

#[tokio::test]
async fn headers_that_are_the_host_s_to_say_are_refused() {
    let server = untouched();
    let origin = format!("http://127.0.0.1:{}", server.port());
    let grants = grants(&[&origin], &["127.0.0.0/8"]);
    for (header, value) in [
        ("Host", "evil.test"),
        ("Connection", "keep-alive"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "websocket"),
        ("Proxy-Authorization", "Basic x"),
        ("X-A", "b\r\nHost: evil.test"),
        ("X-A\r\nHost", "evil.test"),
        ("X-A: b\r\nHost", "evil.test"),
        ("", "nothing"),
    ] {
        let ran = run(&grants, json!([{"url": origin, "headers": [[header, value]]}])).await;
        assert_eq!(ran.error(), "Invalid", "{header:?}: {value:?}");
    }
    for method in ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nHost: evil.test\r\n\r\nGET", ""] {
        let ran = run(&grants, json!([{"url": origin, "method": method}])).await;
        assert_eq!(ran.error(), "Invalid", "{method:?}");
    }
    assert_eq!(server.connections(), 0);
}

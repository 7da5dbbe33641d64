//! Manifests and ceilings: what each key means, what is said of each mistake, and which layer wins.

use std::path::Path;

use super::*;
use crate::grants::{Injection, SecretText};
use crate::job::MAX_ATTEMPTS_DEFAULT;
use crate::sandbox::{Asks, Declared, Limits};

const EVERYTHING: &str = r#"
kinds = ["order_close", "order_open"]
timeout = "3s"
memory = "64MiB"
output = "2MiB"
logs = "16KiB"
concurrency = 4
weight = 3

[retention]
completed_age = "1d"
completed_count = 7
completed_bytes = "none"
dead_age = "2d"
dead_count = "off"
dead_bytes = "1MiB"
results = true

[retry]
attempts = 9
base = "1s"
max = "1m"
jitter = "10%"

[allow]
http = ["https://api.example.com", "http://127.0.0.1:8080", "https://*.example.org"]
state = { bucket = "orders", entries = 5, bytes = "1KiB" }
enqueue = { kinds = ["order_notify", "report_*"], jobs = 20, depth = 2 }
dirs = [{ host = "/srv/x/in", guest = "/in" }, { host = "/srv/x/out/", guest = "/out", writable = true }]

[allow.http_limits]
requests = 5
connections = 2
sent = "1KiB"
received = "2KiB"
timeout = "4s"

[allow.env]
MODE = "live"
ZONE = { from = "TZ" }

[allow.secrets]
signing = "read"
api_key = { to = "https://api.example.com", header = "Authorization", format = "Bearer {}" }
two = [
  { to = "https://api.example.com", header = "x-a" },
  { to = "https://a.example.org", header = "x-b" },
]
"#;

fn read(text: &str) -> Manifest {
    parse("m.toml", text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn wrong(text: &str) -> Vec<String> {
    parse("m.toml", text).expect_err("it is wrong").0
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// The operator of a file with these tables, whose environment has `TZ` and whose secrets have values named after them.
fn operator(text: &str) -> Operator {
    let settings = operator_settings(text).unwrap_or_else(|problems| panic!("{problems}"));
    let variable =
        |name: &str| (name == "TZ" || name.starts_with("SECRET")).then(|| format!("value-of-{name}"));
    settings
        .resolve(variable, |_: &Path| Ok(b"value-of-file\n".to_vec()))
        .unwrap_or_else(|problems| panic!("{problems}"))
}

fn operator_settings(text: &str) -> Result<OperatorSettings, Problems> {
    let table = Document::table(text, "h.toml")?;
    let document = Document::new("h.toml", text);
    let keys = document.keys(&table);
    let settings = OperatorSettings {
        ceiling: keys.take("ceiling", ceiling::read).unwrap_or_default(),
        secrets: keys.take("secrets", ceiling::read_secrets).unwrap_or_default(),
    };
    keys.end();
    document.problems().or(settings)
}

fn module(asks: Asks) -> Declared {
    Declared {
        kind: name("k"),
        timeout_ms: None,
        max_attempts: None,
        backoff: None,
        keep_results: false,
        asks,
    }
}

fn of(manifest: &str, operator: &Operator) -> Effective {
    effective(&name("k"), None, Some(&read(manifest)), operator)
        .unwrap_or_else(|problems| panic!("{problems}"))
}

#[test]
fn every_key_is_read() {
    let manifest = read(EVERYTHING);
    assert_eq!(manifest.kinds.as_ref().unwrap().0, [name("order_close"), name("order_open")]);
    assert_eq!((manifest.timeout_ms, manifest.memory_bytes), (Some(3_000), Some(64 << 20)));
    assert_eq!((manifest.output_bytes, manifest.log_bytes), (Some(2 << 20), Some(16 << 10)));
    assert_eq!((manifest.concurrency, manifest.weight, manifest.results), (Some(4), Some(3), Some(true)));
    let keep = |age, count, bytes| Keep { age_ms: Some(age), count: Some(count), bytes: Some(bytes) };
    assert_eq!(manifest.retention_finished, keep(Some(86_400_000), Some(7), None));
    assert_eq!(manifest.retention_dead, keep(Some(172_800_000), None, Some(1 << 20)));
    let retry = Retry { attempts: Some(9), base_ms: Some(1_000), max_ms: Some(60_000), jitter: Some(0.1) };
    assert_eq!(manifest.retry, retry);
    let Allow { http, http_limits, env, secrets, state, enqueue, dirs } = manifest.allow;
    let http: Vec<String> = http.iter().map(ToString::to_string).collect();
    assert_eq!(http, ["https://api.example.com", "http://127.0.0.1:8080", "https://*.example.org"]);
    let limits = HttpLimits {
        requests: Some(5),
        connections: Some(2),
        sent_bytes: Some(1 << 10),
        received_bytes: Some(2 << 10),
        timeout_ms: Some(4_000),
    };
    assert_eq!(http_limits, limits);
    let ask = |name: &str, value| EnvAsk { name: name.to_owned(), value };
    assert_eq!(
        env,
        [ask("MODE", EnvValue::Text("live".to_owned())), ask("ZONE", EnvValue::Runner("TZ".to_owned()))]
    );
    let secrets: Vec<_> = secrets.iter().map(|s| (s.name.as_str(), s.readable, s.injections.len())).collect();
    assert_eq!(secrets, [("api_key", false, 1), ("signing", true, 0), ("two", false, 2)]);
    assert_eq!(
        state,
        Some(StateAsk { bucket: Some(name("orders")), entries: Some(5), bytes: Some(1 << 10) })
    );
    let kinds = vec!["order_notify".to_owned(), "report_*".to_owned()];
    assert_eq!(enqueue, Some(EnqueueAsk { kinds, jobs: Some(20), depth: Some(2) }));
    let dir =
        |host: &str, guest: &str, writable| DirGrant { host: host.into(), guest: guest.to_owned(), writable };
    assert_eq!(dirs, [dir("/srv/x/in", "/in", false), dir("/srv/x/out", "/out", true)]);
}

#[test]
fn short_forms_mean_what_they_say() {
    let allow = read("[allow]\nstate = true\nenqueue = ['*']\nenv = ['TZ']\nsecrets = ['a', 'b']").allow;
    assert_eq!(allow.state, Some(StateAsk::default()));
    assert_eq!(allow.enqueue.unwrap().kinds, ["*"]);
    assert_eq!(allow.env, [EnvAsk { name: "TZ".to_owned(), value: EnvValue::Runner("TZ".to_owned()) }]);
    assert!(allow.secrets.iter().all(|secret| secret.readable && secret.injections.is_empty()));
    assert_eq!(read("[allow]\nstate = false").allow.state, None);
    assert_eq!(read("[allow]\nstate = 'shared'").allow.state.unwrap().bucket, Some(name("shared")));
    assert_eq!(read("").allow, Allow::default());
    assert_eq!(read("[retry]\njitter = 0.25").retry.jitter, Some(0.25));
    assert_eq!(read("\u{feff}timeout = '1s'").timeout_ms, Some(1_000));
}

#[test]
fn each_mistake_names_file_line_key_and_what_is_allowed() {
    for (text, said) in [
        ("timeot = '3s'", "m.toml:1: timeot: unknown key: expected one of allow, concurrency, kinds"),
        ("\n\ntimeout = 3", "m.toml:3: timeout: expected a span of time such as \"3s\", got a number"),
        ("timeout = '0'", "m.toml:1: timeout: expected 1ms to 1d, got \"0\""),
        ("timeout = '2d'", "expected 1ms to 1d"),
        ("timeout = '3 s'", "expected a duration such as"),
        ("memory = '1KiB'", "m.toml:1: memory: expected 64KiB to 4GiB, got \"1KiB\""),
        ("memory = 64", "expected a size such as \"64MiB\", got a number"),
        ("output = '1GiB'", "expected 1B to 16MiB"),
        ("logs = '1B'", "expected 1KiB to 1MiB"),
        ("concurrency = 0", "expected a whole number from 1 to 4096, got 0"),
        ("concurrency = -1", "got -1"),
        ("concurrency = '4'", "expected a whole number from 1 to 4096, got a text"),
        ("weight = 101", "expected a whole number from 1 to 100, got 101"),
        ("kinds = []", "expected one kind or more"),
        ("kinds = 'a'", "expected a list of kinds, got a text"),
        ("kinds = ['a', 'a b']", "invalid name \"a b\""),
        ("kinds = ['a', 'a']", "a is there more than once"),
        ("retention = 5", "expected a table, as in [retention], got a number"),
        (
            "[retention]\ncompleted = '1d'",
            "m.toml:2: retention.completed: unknown key: expected one of completed_age",
        ),
        ("[retention]\ndead_age = '1'", "it needs a unit"),
        ("[retention]\nresults = 1", "expected true or false, got a number"),
        ("[retry]\nattempts = 1001", "expected a whole number from 1 to 1000"),
        ("[retry]\nbase = '1h'\nmax = '1m'", "expected base not to be longer than max, got 1h and 1m"),
        ("[retry]\njitter = 2", "expected a fraction from 0.0 to 1.0"),
        ("[retry]\njitter = nan", "expected a fraction from 0.0 to 1.0"),
        ("[retry]\njitter = '120%'", "expected a fraction from 0.0 to 1.0"),
        (
            "[allow]\nfiles = []",
            "m.toml:2: allow.files: unknown key: expected one of dirs, enqueue, env, http",
        ),
        ("[allow]\nhttp = 'https://a.b'", "allow.http: expected a list of targets"),
        (
            "[allow]\nhttp = [\n 'https://a.b',\n 'https://a.b/c'\n]",
            "m.toml:4: allow.http: expected scheme, host and port",
        ),
        ("[allow.http_limits]\nrequests = 0", "allow.http_limits.requests: expected a whole number from 1"),
        ("[allow.http_limits]\nspeed = 0", "allow.http_limits.speed: unknown key"),
        ("[allow]\nenv = ['A B']", "expected the name of a variable"),
        ("[allow.env]\nA = 5", "allow.env.A: expected a text in quotes, or { from"),
        ("[allow.env]\nA = {}", "expected { from = \"NAME\" }, got no from"),
        ("[allow.env]\nA = { from = 'B', to = 'C' }", "allow.env.A.to: unknown key"),
        ("[allow]\nsecrets = ['']", "expected the name of a secret"),
        ("[allow.secrets]\na = true", "expected \"read\", or a table"),
        ("[allow.secrets]\na = 'write'", "expected \"read\", or a table"),
        ("[allow.secrets]\na = {}", "expected to and header, got no to and no header"),
        (
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = { to = 'https://c.d', header = 'x' }",
            "m.toml:3: allow.secrets.a.to: expected a target that allow.http has, got https://c.d: add it there",
        ),
        (
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = { to = 'https://*.b', header = 'x' }",
            "expected a target that allow.http has",
        ),
        (
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = { to = 'https://a.b', header = 'Host' }",
            "\"host\", which the client sets itself",
        ),
        (
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = { to = 'https://a.b', header = 'a b' }",
            "expected the name of a header",
        ),
        (
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = { to = 'https://a.b', header = 'x', format = 'Bearer' }",
            "expected printable ASCII with {} once",
        ),
        ("[allow]\nstate = 5", "expected true, the name of a bucket, or a table"),
        ("[allow.state]\nbucket = 'a b'", "invalid name"),
        ("[allow.state]\nentries = 0", "allow.state.entries: expected a whole number from 1"),
        ("[allow]\nenqueue = true", "expected a list of kinds"),
        ("[allow]\nenqueue = []", "expected one kind or more"),
        ("[allow]\nenqueue = ['a*b']", "a star may stand at its end"),
        ("[allow.enqueue]\njobs = 5", "expected kinds, a list"),
        ("[allow.enqueue]\nkinds = ['a']\njobs = 2001", "expected a whole number from 1 to 2000, got 2001"),
        ("[allow]\ndirs = ['/srv']", "expected a table such as { host"),
        ("[allow]\ndirs = [{ host = '/srv' }]", "expected host and guest, got no guest"),
        ("[allow]\ndirs = [{ host = 'srv', guest = '/a' }]", "expected an absolute path"),
        (
            "[allow]\ndirs = [{ host = '/srv/../etc', guest = '/a' }]",
            "expected an absolute path without .. and .",
        ),
        (
            "[allow]\ndirs = [{ host = '/a', guest = '/a' }, { host = '/b', guest = '/a' }]",
            "the guest has \"/a\" more than once",
        ),
        ("a = \n", "m.toml:1: not valid TOML"),
        ("'a\\nb' = 1", "unknown key"),
    ] {
        let messages = wrong(text);
        assert_eq!(messages.len(), 1, "{text}: {messages:?}");
        assert!(messages[0].contains(said), "{text}\n  said     {}\n  expected {said}", messages[0]);
        assert!(messages[0].starts_with("m.toml:") && !messages[0].contains('\n'), "{messages:?}");
    }
}

#[test]
fn all_mistakes_of_a_file_are_said_together_in_its_order() {
    let messages =
        wrong("wait = 1\ntimeout = '0'\n[allow]\nhttp = ['a', 'b']\nstate = 1\n[retry]\nattempts = 0\n");
    let lines: Vec<&str> = messages.iter().map(|message| message.split(": ").next().unwrap()).collect();
    assert_eq!(
        lines,
        ["m.toml:1", "m.toml:2", "m.toml:4", "m.toml:4", "m.toml:5", "m.toml:7"],
        "{messages:#?}"
    );
}

#[test]
fn no_message_has_a_secret_in_it() {
    const SECRET: &str = "sk-live-4242 hunter2";
    for text in [
        format!("[allow]\nsecrets = ['{SECRET}']"),
        format!("[allow.secrets]\na = '{SECRET}'"),
        format!("[allow.env]\nA = {{ from = '{SECRET}' }}"),
        format!("[allow]\nenv = ['{SECRET}']"),
        format!("[allow]\nhttp = ['https://u:{}@a.b']", SECRET.replace(' ', "")),
        format!(
            "[allow]\nhttp = ['https://a.b']\nsecrets.a = {{ to = 'https://a.b', header = 'x', format = '{SECRET}' }}"
        ),
        format!("[allow]\nhttp = ['https://a.b']\nsecrets.a = {{ to = 'https://a.b', header = '{SECRET}' }}"),
        format!("[allow.env]\nA = '{SECRET}\n"),
    ] {
        let said = wrong(&text).join("\n");
        assert!(!said.contains("hunter2"), "{text}: {said}");
    }
    for text in [
        format!("[secrets]\na = '{SECRET}'"),
        format!("[secrets]\na = {{ env = '{SECRET}' }}"),
        format!("[secrets]\na = {{ file = '{SECRET}' }}"),
        format!("[ceiling]\nenv = ['{SECRET}']"),
        format!("[ceiling.allow]\nsecrets = ['{SECRET}']"),
    ] {
        let said = operator_settings(&text).expect_err("it is wrong").to_string();
        assert!(!said.contains("hunter2"), "{text}: {said}");
    }
}

#[test]
fn kinds_come_from_the_manifest_or_the_module_or_the_file_s_name() {
    let declared = [module(Asks::default()), Declared { kind: name("l"), ..module(Asks::default()) }];
    assert_eq!(kinds("stem", &[], None), Ok(vec![name("stem")]));
    assert_eq!(kinds("stem", &declared, None), Ok(vec![name("k"), name("l")]));
    assert_eq!(kinds("stem", &declared, Some(&read("kinds = ['l']"))), Ok(vec![name("l")]));
    assert_eq!(kinds("a b", &[], Some(&read("kinds = ['x', 'y']"))), Ok(vec![name("x"), name("y")]));
    let problem = kinds("stem", &declared, Some(&read("\nkinds = ['l', 'z']"))).unwrap_err().to_string();
    assert_eq!(problem, "m.toml:2: kinds: expected kinds that the module has handlers for (k, l), got z");
    assert!(kinds("a b", &[], None).unwrap_err().to_string().contains("declares no kind"));
}

#[test]
fn without_manifest_and_ceiling_nothing_is_granted_and_defaults_hold() {
    let plain = effective(&name("k"), None, None, &Operator::default()).unwrap();
    assert_eq!(plain.limits, Limits::default());
    assert_eq!(plain.grants, crate::grants::Grants::default());
    assert_eq!((plain.max_attempts, plain.attempts_cap), (MAX_ATTEMPTS_DEFAULT, None));
    assert_eq!((plain.concurrency, plain.weight, plain.keep_results), (None, 1, false));
    assert_eq!(plain.backoff, crate::backoff::Backoff::default());
    assert_eq!(plain.notes, Vec::<String>::new());
}

#[test]
fn of_each_limit_the_narrowest_of_three_layers_counts() {
    let asks = Asks { memory_bytes: Some(96 << 20), ..Asks::default() };
    let module = Declared { timeout_ms: Some(10_000), ..module(asks) };
    let get = |manifest: &str, ceiling: &str| {
        let manifest = read(manifest);
        effective(&name("k"), Some(&module), Some(&manifest), &operator(ceiling)).unwrap()
    };
    let limits = |manifest: &str, ceiling: &str| {
        let limits = get(manifest, ceiling).limits;
        (limits.timeout_ms, limits.memory_bytes >> 20)
    };
    assert_eq!(limits("", ""), (10_000, 96));
    assert_eq!(limits("timeout = '3s'\nmemory = '64MiB'", ""), (3_000, 64));
    assert_eq!(limits("timeout = '1h'\nmemory = '1GiB'", ""), (10_000, 96));
    assert_eq!(limits("timeout = '3s'", "[ceiling]\ntimeout = '1s'\nmemory = '32MiB'"), (1_000, 32));
    assert_eq!(get("timeout = '3s'", "").notes, Vec::<String>::new());
    assert_eq!(
        get("timeout = '3s'", "[ceiling]\ntimeout = '1s'").notes,
        ["m.toml: timeout: 3s is more than the ceiling's 1s, which counts (see [ceiling] in hourhand.toml)"]
    );
    let all = "timeout = '3s'\nmemory = '1GiB'\noutput = '4MiB'\nlogs = '256KiB'\nconcurrency = 9\n[retry]\nattempts = 9";
    let low = "[ceiling]\ntimeout = '2s'\nmemory = '512MiB'\noutput = '2MiB'\nlogs = '8KiB'\nconcurrency = 2\nattempts = 3";
    let capped = of(all, &operator(low));
    let expected =
        Limits { timeout_ms: 2_000, memory_bytes: 512 << 20, output_bytes: 2 << 20, log_bytes: 8 << 10 };
    assert_eq!(capped.limits, expected);
    assert_eq!((capped.concurrency, capped.max_attempts, capped.attempts_cap), (Some(2), 3, Some(3)));
    assert_eq!(capped.notes.len(), 6, "{:?}", capped.notes);
    // Who says nothing is capped too, and nobody has to hear of it.
    let silent = of("", &operator(low));
    assert_eq!(
        (silent.limits.timeout_ms, silent.limits.log_bytes, silent.concurrency),
        (2_000, 8 << 10, Some(2))
    );
    assert_eq!((silent.max_attempts, silent.notes.len()), (3, 0));
    // The pool is made for 128 MiB unless a ceiling says otherwise.
    let large = of("memory = '1GiB'", &Operator::default());
    assert_eq!((large.limits.memory_bytes, large.notes.len()), (128 << 20, 1));
}

#[test]
fn retries_are_the_manifest_s_before_the_module_s_part_by_part() {
    let backoff = crate::backoff::Backoff { base_ms: 7, max_ms: 70, jitter: 0.5 };
    let module = Declared {
        max_attempts: Some(2),
        backoff: Some(backoff),
        keep_results: true,
        ..module(Asks::default())
    };
    let get = |manifest: &str| {
        effective(&name("k"), Some(&module), Some(&read(manifest)), &Operator::default()).unwrap()
    };
    assert_eq!((get("").max_attempts, get("").backoff, get("").keep_results), (2, backoff, true));
    let some = get("[retry]\nattempts = 9\nmax = '1s'");
    assert_eq!((some.max_attempts, some.backoff), (9, crate::backoff::Backoff { max_ms: 1_000, ..backoff }));
    assert!(!get("[retention]\nresults = false").keep_results);
}

#[test]
fn retention_changes_what_it_names_and_nothing_else() {
    let manifest = read("[retention]\ncompleted_age = '0'\ndead_age = 'off'");
    let kept = manifest.retention_finished.over(Retention::FINISHED);
    assert_eq!(kept, Retention { age_ms: Some(0), ..Retention::FINISHED });
    assert_eq!(manifest.retention_dead.over(Retention::DEAD), Retention { age_ms: None, ..Retention::DEAD });
    assert_eq!(Keep::default().over(Retention::DEAD), Retention::DEAD);
}

#[test]
fn http_is_what_all_three_layers_allow() {
    let get = |manifest: &str, asked: Option<&[&str]>, ceiling: &str| {
        let http = asked.map(|list| list.iter().map(|text| origin(text).unwrap()).collect());
        let module = module(Asks { http, ..Asks::default() });
        effective(&name("k"), Some(&module), Some(&read(manifest)), &operator(ceiling)).unwrap()
    };
    let targets = |effective: &Effective| {
        effective.grants.http.allow.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let manifest = "[allow]\nhttp = ['https://*.example.com', 'http://x.org']";
    let open = get(manifest, None, "[ceiling]\nprivate = ['10.1.0.0/16', '127.0.0.1']");
    assert_eq!(targets(&open), ["https://*.example.com", "http://x.org"]);
    let private: Vec<String> = open.grants.http.private.iter().map(ToString::to_string).collect();
    assert_eq!(private, ["10.1.0.0/16", "127.0.0.1/32"]);
    assert_eq!(open.notes.len(), 0);
    let narrowed = get(manifest, None, "[ceiling.allow]\nhttp = ['https://api.example.com']");
    assert_eq!(targets(&narrowed), ["https://api.example.com"]);
    assert!(
        narrowed.notes[0]
            .contains("https://*.example.com is beyond [ceiling.allow] http, which leaves https://api")
    );
    assert!(narrowed.notes[1].contains("http://x.org is beyond"), "{:?}", narrowed.notes);
    let asked = get(manifest, Some(&["https://a.example.com", "https://y.org"]), "");
    assert_eq!(targets(&asked), ["https://a.example.com"]);
    assert_eq!(
        asked.notes,
        ["the module of k asks for https://y.org: m.toml does not grant it in allow.http"]
    );
    assert_eq!(targets(&get(manifest, Some(&[]), "")), Vec::<String>::new(), "it wants nothing");
    assert_eq!(targets(&get(manifest, None, "[ceiling.allow]\nhttp = []")), Vec::<String>::new());
    let limits = get(
        "[allow.http_limits]\nrequests = 500\nsent = '1KiB'",
        None,
        "[ceiling.allow.http_limits]\nrequests = 50\nreceived = '2KiB'",
    );
    let http = limits.grants.http;
    assert_eq!((http.requests_max, http.sent_bytes_max, http.received_bytes_max), (50, 1 << 10, 2 << 10));
}

#[test]
fn variables_of_the_runner_need_the_ceiling_s_word() {
    let manifest = "[allow.env]\nMODE = 'live'\nZONE = { from = 'TZ' }\nHOMES = { from = 'HOME' }";
    let env = |operator: &Operator| of(manifest, operator).grants.env;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(env(&Operator::default()), [pair("MODE", "live")]);
    let listed = operator("[ceiling]\nenv = ['TZ', 'HOME']");
    assert_eq!(env(&listed), [pair("MODE", "live"), pair("ZONE", "value-of-TZ")], "HOME is not set");
    assert!(of(manifest, &listed).notes[0].contains("HOME is not set"));
    let none = module(Asks { env: Some(vec!["MODE".to_owned(), "X".to_owned()]), ..Asks::default() });
    let effective = effective(&name("k"), Some(&none), Some(&read(manifest)), &listed).unwrap();
    assert_eq!(effective.grants.env, [pair("MODE", "live")]);
    assert!(effective.notes[0].contains("asks for the variable X"), "{:?}", effective.notes);
}

#[test]
fn secrets_are_the_operator_s_and_go_where_both_layers_allow() {
    let manifest = "[allow]\nhttp = ['https://*.a.b', 'https://c.d']\n[allow.secrets]\nread_me = 'read'\n\
                    put = [{ to = 'https://*.a.b', header = 'x-key' }, { to = 'https://c.d', header = 'x-key' }]";
    let secrets = "[secrets]\nread_me = { env = 'SECRET_A' }\nput = { file = '/run/put' }\nother = { env = 'SECRET_B' }\n";
    let grants = of(manifest, &operator(secrets)).grants;
    let [put, read_me] = &grants.secrets[..] else { panic!("{grants:?}") };
    assert_eq!((read_me.readable, &read_me.value), (true, &SecretText("value-of-SECRET_A".to_owned())));
    assert_eq!((put.readable, &put.value), (false, &SecretText("value-of-file".to_owned())), "no line end");
    let injected =
        |to: &str| Injection { to: origin(to).unwrap(), header: "x-key".to_owned(), format: "{}".to_owned() };
    assert_eq!(put.injections, [injected("https://*.a.b"), injected("https://c.d")]);
    assert!(!format!("{grants:?}").contains("value-of"), "{grants:?}");
    // The secret goes no further than the requests.
    let narrow = operator(&format!("{secrets}[ceiling.allow]\nhttp = ['https://x.a.b']\nsecrets = ['put']"));
    let narrowed = of(manifest, &narrow);
    assert_eq!(narrowed.grants.secrets.len(), 1);
    assert_eq!(narrowed.grants.secrets[0].injections, [injected("https://x.a.b")]);
    assert!(narrowed.notes.iter().any(|note| note.contains("read_me is beyond [ceiling.allow] secrets")));
    let unknown = effective(
        &name("k"),
        None,
        Some(&read(manifest)),
        &operator("[secrets]\nput = { env = 'SECRET_A' }"),
    );
    let problem = unknown.unwrap_err().to_string();
    assert!(
        problem.starts_with("m.toml:4: allow.secrets.read_me: expected one of the operator's secrets"),
        "{problem}"
    );
    assert!(problem.contains("(put), got read_me"), "{problem}");
    let odd = Operator {
        secrets: [("put".to_owned(), Some(SecretText("a\nb".to_owned()))), ("read_me".to_owned(), None)]
            .into(),
        ..Operator::default()
    };
    let problem = effective(&name("k"), None, Some(&read(manifest)), &odd).unwrap_err().to_string();
    assert!(problem.contains("printable ASCII") && !problem.contains("a\nb"), "{problem}");
}

#[test]
fn state_enqueue_and_dirs_are_narrowed_by_each_layer() {
    let state = |manifest: &str, ceiling: &str| of(manifest, &operator(ceiling)).grants.state;
    let own = state("[allow]\nstate = true", "").unwrap();
    assert_eq!((own.bucket.as_str(), own.entries_max, own.bytes_max), ("k", 10_000, 16 << 20));
    let capped =
        state("[allow]\nstate = { bucket = 'b', entries = 500 }", "[ceiling.allow]\nstate = { entries = 5 }")
            .unwrap();
    assert_eq!((capped.bucket.as_str(), capped.entries_max), ("b", 5));
    assert_eq!(state("[allow]\nstate = true", "[ceiling.allow]\nstate = false"), None);
    let refuses =
        module(Asks { state: Some(false), enqueue: Some(vec!["a_b".to_owned()]), ..Asks::default() });
    let manifest = read("[allow]\nstate = true\nenqueue = ['a_*', 'c']");
    let both = effective(&name("k"), Some(&refuses), Some(&manifest), &Operator::default()).unwrap().grants;
    assert_eq!((both.state, both.enqueue.unwrap().kinds), (None, vec!["a_b".to_owned()]));
    let enqueue = |ceiling: &str| {
        effective(&name("k"), None, Some(&manifest), &operator(ceiling)).unwrap().grants.enqueue
    };
    let open = enqueue("").unwrap();
    assert_eq!((open.kinds.len(), open.jobs_max, open.depth_max), (2, 1_000, 10));
    let capped = enqueue("[ceiling.allow.enqueue]\nkinds = ['a_b*', 'd']\njobs = 7\ndepth = 1").unwrap();
    assert_eq!((capped.kinds, capped.jobs_max, capped.depth_max), (vec!["a_b*".to_owned()], 7, 1));
    assert_eq!(enqueue("[ceiling.allow]\nenqueue = []"), None);
    assert!(open.allows("a_x") && open.allows("c") && !open.allows("cc") && !open.allows("b"));

    let dirs = "[allow]\ndirs = [{ host = '/srv/x/a', guest = '/a' }, { host = '/srv/xy', guest = '/b' }]";
    assert_eq!(of(dirs, &Operator::default()).grants.dirs, []);
    let some = of(dirs, &operator("[ceiling]\ndirs = ['/srv/x']"));
    assert_eq!(some.grants.dirs.len(), 1);
    assert_eq!(some.grants.dirs[0].guest, "/a");
    assert_eq!(some.notes.len(), 1, "{:?}", some.notes);
}

#[test]
fn a_secret_that_is_not_to_be_had_is_named_without_its_value() {
    let settings = operator_settings(
        "[secrets]\na = { env = 'NONE' }\nb = { file = '/none' }\nc = { file = '/empty' }\nd = { file = '/bytes' }",
    );
    let read = |path: &Path| match path.to_str().unwrap() {
        "/empty" => Ok(b"\n".to_vec()),
        "/bytes" => Ok(vec![b'x', 0xff]),
        _ => Err(std::io::ErrorKind::NotFound.into()),
    };
    let problems = settings.unwrap().resolve(|_| None, read).unwrap_err().0;
    for (problem, said) in problems.iter().zip([
        "h.toml:2: secrets.a: the variable NONE is not set",
        "h.toml:3: secrets.b: cannot read /none",
        "h.toml:4: secrets.c: it is empty",
        "h.toml:5: secrets.d: /bytes is not UTF-8",
    ]) {
        assert!(problem.starts_with(said), "{problem}");
    }
    assert_eq!(problems.len(), 4);
}

#[test]
fn a_ceiling_is_as_strict_as_a_manifest() {
    for (text, said) in [
        (
            "[ceiling]\ntimeot = '1s'",
            "h.toml:2: ceiling.timeot: unknown key: expected one of allow, attempts, concurrency",
        ),
        ("[ceiling]\nmemory = '8GiB'", "expected 64KiB to 4GiB"),
        ("[ceiling]\nprivate = ['10.1.2.3/16']", "expected the network 10.1.0.0/16"),
        ("[ceiling]\nprivate = ['ten']", "expected a network such as"),
        ("[ceiling]\ndirs = ['srv']", "expected an absolute path"),
        ("[ceiling.allow]\ndirs = []", "ceiling.allow.dirs: unknown key"),
        (
            "[secrets]\na = {}",
            "h.toml:2: secrets.a: expected { env = \"VARIABLE\" } or { file = \"/path\" }, got neither",
        ),
        ("[secrets]\na = { env = 'A', file = '/a' }", "got both"),
        ("[secrets]\n'a b' = { env = 'A' }", "expected the name of a secret"),
    ] {
        let problems = operator_settings(text).expect_err("it is wrong").0;
        assert_eq!(problems.len(), 1, "{text}: {problems:?}");
        assert!(problems[0].contains(said), "{text}: {problems:?}");
    }
}

/// The page for users, of which every example is read and every key is looked for.
const PAGE: &str = include_str!("../../../docs/manifest.md");

/// The examples of the page for a file of this name.
fn examples(file: &str) -> Vec<&'static str> {
    let blocks = PAGE.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    blocks.filter(|block| block.lines().next().is_some_and(|first| first.ends_with(file))).collect()
}

#[test]
fn the_examples_of_the_page_are_what_they_say() {
    let manifests = examples("order_close.toml");
    assert!(manifests.len() >= 6, "{manifests:?}");
    let [ceiling] = examples("hourhand.toml")[..] else { panic!("one example of a ceiling") };
    let operator = operator(&ceiling.replace("SIGNING_KEY", "SECRET"));
    for text in manifests {
        let effective = effective(&name("order_close"), None, Some(&read(text)), &operator);
        let effective = effective.unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        // The ceiling of the page has one secret less, to show that it can.
        let surprising = effective.notes.iter().find(|note| !note.contains("signing"));
        assert_eq!(surprising, None, "{text}");
    }
}

#[test]
fn the_page_has_every_key_and_default() {
    // Each table says its own keys when it is asked for one that it does not have.
    for (text, read) in [
        ("none = 1", false),
        ("[retention]\nnone = 1", false),
        ("[retry]\nnone = 1", false),
        ("[allow]\nnone = 1", false),
        ("[allow.http_limits]\nnone = 1", false),
        ("[allow.state]\nnone = 1", false),
        ("[allow.enqueue]\nkinds = ['a']\nnone = 1", false),
        ("[ceiling]\nnone = 1", true),
        ("[ceiling.allow]\nnone = 1", true),
    ] {
        let problems = if read { operator_settings(text).unwrap_err().0 } else { wrong(text) };
        let keys = problems[0].split("expected one of ").nth(1).expect("a list of keys");
        for key in keys.split(", ") {
            let forms = [format!("`{key}`"), format!("{key} = "), format!("[{key}]"), format!(".{key}]")];
            assert!(forms.iter().any(|form| PAGE.contains(form)), "{text}: {key}");
        }
    }
    let defaults = Limits::default();
    let http = crate::grants::HttpGrant::default();
    for default in [
        format!("| `timeout` | `\"{}\"` |", document::units_of_ms(defaults.timeout_ms)),
        format!("| `memory` | `\"{}\"` |", document::units_of_bytes(defaults.memory_bytes)),
        format!("| `output` | `\"{}\"` |", document::units_of_bytes(defaults.output_bytes as u64)),
        format!("| `logs` | `\"{}\"` |", document::units_of_bytes(defaults.log_bytes as u64)),
        format!("| `attempts` | {MAX_ATTEMPTS_DEFAULT} |"),
        format!("requests = {} ", http.requests_max),
        format!("connections = {} ", http.connections_max),
        format!("sent = \"{}\" ", document::units_of_bytes(http.sent_bytes_max)),
        format!("received = \"{}\" ", document::units_of_bytes(http.received_bytes_max)),
        format!("timeout = \"{}\" ", document::units_of_ms(http.timeout_ms)),
    ] {
        assert!(PAGE.contains(&default), "{default}");
    }
}

#[test]
fn lists_and_tables_have_an_end_and_so_has_what_is_said_of_a_file() {
    let list = |entries: usize, entry: fn(usize) -> String| -> String {
        (0..entries).map(entry).collect::<Vec<_>>().join(", ")
    };
    let quoted = |n: usize| format!("'a{n}'");
    for (key, text) in [
        ("kinds", format!("kinds = [{}]", list(1_001, quoted))),
        ("allow.http", format!("[allow]\nhttp = [{}]", list(1_001, |n| format!("'https://a{n}.b'")))),
        ("allow.env", format!("[allow]\nenv = [{}]", list(1_001, quoted))),
        ("allow.env", format!("[allow]\nenv = {{ {} }}", list(1_001, |n| format!("A{n} = 'x'")))),
        ("allow.enqueue", format!("[allow]\nenqueue = [{}]", list(1_001, quoted))),
    ] {
        let problems = parse("k.toml", &text).unwrap_err().0;
        let line = text.lines().count();
        let expected = format!("k.toml:{line}: {key}: expected at most 1000 entries, got 1001");
        assert_eq!(problems, [expected]);
    }
    let most = parse("k.toml", &format!("kinds = [{}]", list(1_000, quoted))).unwrap();
    assert_eq!(most.kinds.unwrap().0.len(), 1_000);
    let unknown: String = (0..500).map(|n| format!("unknown{n} = 1\n")).collect();
    assert_eq!(parse("k.toml", &unknown).unwrap_err().0.len(), 100);
}

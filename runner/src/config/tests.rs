//! Settings from all layers, and the messages about what is wrong with them.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write;

use super::*;
use crate::queue::sqlite::Durability;

fn machine() -> Machine {
    Machine {
        host: "host".to_owned(),
        pid: 7,
        user: "user".to_owned(),
        memory_bytes: 8 << 30,
        cache_dir: "/cache/hourhand".into(),
        state_dir: "/state/hourhand".into(),
    }
}

fn layers(
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
    file: &str,
) -> Result<Layers, Problems> {
    let dir = tempfile::tempdir().expect("a temporary folder");
    if !file.is_empty() {
        let mut out = std::fs::File::create(dir.path().join("hourhand.toml")).expect("a file");
        out.write_all(file.as_bytes()).expect("written");
    }
    let flags = flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect::<BTreeMap<_, _>>();
    let variables = variables.iter().map(|(k, v)| (OsString::from(k), OsString::from(v)));
    Layers::new(flags, variables.collect::<Vec<_>>())?.with_file(None, dir.path())
}

fn run(
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
    file: &str,
) -> Result<RunSettings, Problems> {
    RunSettings::resolve(&layers(flags, variables, file)?, &machine(), false)
}

#[test]
fn without_any_setting_everything_has_its_default() {
    let settings = run(&[], &[], "").expect("valid");
    assert_eq!(settings.store.url.expose(), "sqlite://hourhand.db");
    assert_eq!(settings.store.durability, Durability::Full);
    assert_eq!(settings.store.namespace.as_str(), "hourhand");
    assert_eq!(settings.handlers, PathBuf::from("handlers"));
    assert_eq!(settings.name, "host:7");
    assert_eq!(settings.concurrency, 128);
    assert_eq!(settings.lease, Duration::from_secs(5));
    assert_eq!(settings.grace, Duration::from_secs(25));
    assert_eq!(settings.kinds, None);
    assert_eq!(settings.retention, RetentionSettings::default());
    assert_eq!(settings.memory_bytes_total, 4 << 30);
    assert_eq!(settings.cache_dir, Some("/cache/hourhand".into()));
    assert_eq!(settings.state_dir, PathBuf::from("/state/hourhand"));
}

#[test]
fn a_flag_beats_a_variable_beats_the_file_beats_redis_url() {
    let url = |flags, variables, file| run(flags, variables, file).expect("valid").store.url.to_string();
    let file = "store = 'redis://file'";
    let both = [("HOURHAND_STORE", "redis://variable"), ("REDIS_URL", "redis://shared")];
    assert_eq!(url(&[("store", "redis://flag")], &both, file), "redis://flag");
    assert_eq!(url(&[], &both, file), "redis://variable");
    assert_eq!(url(&[], &both[1..], file), "redis://file");
    assert_eq!(url(&[], &both[1..], ""), "redis://shared");
    assert_eq!(url(&[], &[("HOURHAND_STORE", ""), both[1]], ""), "redis://shared", "empty is unset");
}

#[test]
fn the_file_sets_what_flags_set() {
    let file = "store = 'redis://h'\nconcurrency = 4\nkinds = ['b', 'a']\nlease = \"2s\"\ncompleted_age = 'none'\n\
                completed_count = 5\ndead_bytes = '1MiB'\nid_memory_age = '0'\ncache_dir = 'off'\nmemory_total = '1GiB'\n";
    let settings = run(&[], &[], file).expect("valid");
    assert_eq!(settings.concurrency, 4);
    assert_eq!(settings.kinds.expect("kinds").iter().map(Name::as_str).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!(settings.lease, Duration::from_secs(2));
    assert_eq!(
        settings.retention.finished,
        Retention { age_ms: None, count: Some(5), bytes: Some(64 << 20) }
    );
    assert_eq!(settings.retention.dead.bytes, Some(1 << 20));
    assert_eq!(settings.retention.id_memory.age_ms, 0);
    assert_eq!(settings.cache_dir, None);
    assert_eq!(settings.memory_bytes_total, 1 << 30);
}

#[test]
fn every_key_can_be_set_from_a_file_and_from_a_variable() {
    // A key that were parsed and then ignored would change nothing.
    let samples = [
        ("cache_dir", "/x"),
        ("completed_age", "9s"),
        ("completed_bytes", "9MiB"),
        ("completed_count", "9"),
        ("concurrency", "9"),
        ("dead_age", "9s"),
        ("dead_bytes", "9MiB"),
        ("dead_count", "9"),
        ("durability", "normal"),
        ("grace", "9s"),
        ("handlers", "/x"),
        ("handlers_events", "off"),
        ("handlers_scan", "9s"),
        ("id_memory_age", "9s"),
        ("id_memory_bytes", "9MiB"),
        ("kinds", "x"),
        ("lease", "9s"),
        ("log", "trace"),
        ("log_format", "json"),
        ("memory_total", "90MiB"),
        ("name", "x"),
        ("namespace", "x"),
        ("queues", "x"),
        ("spool", "on"),
        ("spool_bytes", "9MiB"),
        ("spool_dir", "/x"),
        ("spool_jobs", "9"),
        ("state_dir", "/x"),
        ("store", "sqlite://x"),
        ("wait_replicas", "2"),
    ];
    assert_eq!(samples.map(|(k, _)| k), layers::KEYS, "each key has its sample");
    let read = |layers: &Layers| {
        let run = RunSettings::resolve(layers, &machine(), false).expect("valid");
        (run, LogSettings::resolve(layers, "info", LogFormat::Text).expect("valid"))
    };
    for (key, value) in samples {
        let variable = layers::variable_of(key);
        // Only a Redis has replicas.
        let base: &[(&str, &str)] = if key == "wait_replicas" { &[("REDIS_URL", "redis://h")] } else { &[] };
        let plain = read(&layers(&[], base, "").expect("valid"));
        let with: Vec<(&str, &str)> = base.iter().copied().chain([(&*variable, value)]).collect();
        let by_variable = layers(&[], &with, "").expect("valid variable");
        let list = matches!(key, "kinds" | "queues");
        let line = if list { format!("{key} = ['{value}']") } else { format!("{key} = '{value}'") };
        let by_file = layers(&[], base, &line).expect("valid file");
        assert_eq!(read(&by_variable), read(&by_file), "{key}");
        assert_ne!(read(&by_variable), plain, "{key} is ignored");
    }
}

#[test]
fn a_spool_is_drained_when_it_is_on_or_its_folder_is_named() {
    let spool = |flags: &[(&'static str, &str)], file| run(flags, &[], file).expect("valid").spool;
    let plain = spool(&[], "");
    assert_eq!((plain.on, plain.drained, plain.jobs, plain.bytes), (false, false, 100_000, 256 << 20));
    assert_eq!(plain.dir, PathBuf::from("/state/hourhand/spool"));
    assert_eq!(spool(&[("state_dir", "/s")], "").dir, PathBuf::from("/s/spool"));
    let named = spool(&[("spool_dir", "/x")], "");
    assert_eq!((named.on, named.drained, named.dir), (false, true, PathBuf::from("/x")));
    let on = spool(&[], "spool = 'on'");
    assert!(on.on && on.drained);
    let off = spool(&[("spool_dir", "/x")], "spool = 'off'");
    assert!(!off.on && !off.drained, "off is off");
}

#[test]
fn what_is_wrong_with_the_spool_is_said() {
    for (file, part) in [
        ("spool = 'yes'", "hourhand.toml:1: spool: expected on or off, got \"yes\""),
        ("spool = true", "spool: expected a text in quotes"),
        ("spool_dir = ''", "spool_dir: expected a folder, got nothing"),
        ("spool_jobs = 0", "spool_jobs: expected a number of jobs from 1 to 100000000, got \"0\""),
        ("spool_jobs = 'many'", "spool_jobs: expected a number of jobs"),
        ("spool_jobs = -1", "spool_jobs: expected a number of jobs"),
        ("spool_bytes = '1B'", "spool_bytes: expected 1KiB to 1TiB, got \"1B\""),
        ("spool_bytes = 9", "spool_bytes: expected a size"),
    ] {
        let layers = layers(&[], &[], file).expect("TOML");
        for text in [
            RunSettings::resolve(&layers, &machine(), false).expect_err(file).to_string(),
            SpoolSettings::resolve(&layers, &machine()).expect_err(file).to_string(),
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }
}

#[test]
fn a_file_that_is_read_again_tells_what_differs() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let path = dir.path().join("hourhand.toml");
    let write = |text: &str| std::fs::write(&path, text).expect("written");
    write("lease = '2s'\nspool = 'on'\n");
    let flags = BTreeMap::from([("grace", "3s".to_owned())]);
    let first = Layers::new(flags, []).expect("flags").with_file(None, dir.path()).expect("TOML");
    write("lease = '3s'\ngrace = '9s'\n[ceiling]\nmemory = '1MiB'\n");
    let second = first.reread().expect("TOML");
    assert_eq!(first.differences(&second), ["lease", "spool", "ceiling"], "a flag beats the file");
    assert_eq!(second.find("lease").expect("lease").text, "3s");
    write("lease =");
    assert!(first.reread().is_err());
    std::fs::remove_file(&path).expect("gone");
    assert_eq!(first.differences(&first.reread().expect("no file")), ["lease", "spool"]);
}

#[test]
fn all_problems_are_reported_together_and_each_names_its_place() {
    let error = run(
        &[("lease", "5")],
        &[("HOURHAND_CONCURRENCY", "0")],
        "namespace = 'a b'\nmemory_total = '1KiB'\nkinds = ['a', 'b c']\n",
    )
    .expect_err("many problems");
    let text = error.to_string();
    for part in [
        "--lease: expected a duration",
        "as in 5s",
        "HOURHAND_CONCURRENCY: expected a number of slots from 1 to 4096, got \"0\"",
        "hourhand.toml:1: namespace: invalid name \"a b\"",
        "hourhand.toml:2: memory_total: expected at least 16MiB",
        "hourhand.toml:3: kinds: invalid name \"b c\"",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    assert_eq!(error.0.len(), 5, "{text}");
}

#[test]
fn unknown_keys_and_bad_values_are_reported_together() {
    let file = "leese = '5s'\nlease = '5'\nkinds = 3\nlog = 'loud'\nconcurrency = 0\n";
    let layers = layers(&[], &[], file).expect("TOML");
    let all = all_problems(&layers, &machine());
    for (line, part) in
        [(1, "unknown key"), (2, "lease: "), (3, "kinds: "), (4, "log: "), (5, "concurrency: ")]
    {
        let found = all.0.iter().filter(|p| p.starts_with(&format!("hourhand.toml:{line}: {part}"))).count();
        assert_eq!(found, 1, "{part}: {all}");
    }
    assert_eq!(all.0.len(), 5, "{all}");
    assert_eq!(StoreSettings::resolve(&layers).expect_err("strict").0.len(), 2, "unknown, and a list");
}

#[test]
fn the_file_is_strict() {
    let cases = [
        ("\nleese = '5s'\n", "hourhand.toml:2: unknown key \"leese\": expected one of cache_dir, "),
        ("[run]\nlease = '5s'\n", "hourhand.toml:1: unknown key \"run\""),
        (
            "lease = true\n",
            "hourhand.toml:1: lease: expected a text in quotes or a whole number, got true or false",
        ),
        ("lease = ['5s']\n", "got a list"),
        ("kinds = 3\n", "kinds: expected a list of texts, got a number"),
        ("kinds = [1]\n", "expected a list of texts"),
        ("lease = '1s'\nlease = '2s'\n", "hourhand.toml:2: not valid TOML"),
        ("\n\nlease =\n", "hourhand.toml:3: not valid TOML"),
    ];
    for (file, part) in cases {
        let text = run(&[("store", "redis://h")], &[], file).expect_err(file).to_string();
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn a_named_file_must_be_there_and_a_byte_order_mark_is_fine() {
    let empty = || Layers::new(BTreeMap::new(), Vec::new()).expect("nothing");
    let dir = tempfile::tempdir().expect("a temporary folder");
    let error = empty().with_file(Some("/nowhere/h.toml"), dir.path()).expect_err("missing").to_string();
    assert!(error.starts_with("/nowhere/h.toml: cannot be read"), "{error}");
    let error = empty().with_file(dir.path().to_str(), dir.path()).expect_err("a folder").to_string();
    assert!(error.contains("not a file"), "{error}");
    let path = dir.path().join("bom.toml");
    std::fs::write(&path, "\u{feff}lease = '3s'\n").expect("written");
    let layers = empty().with_file(path.to_str(), dir.path()).expect("valid");
    assert_eq!(layers.find("lease").expect("lease").text, "3s");
}

#[test]
fn what_is_no_store_is_refused_with_what_was_expected() {
    for (url, part) in [
        ("http://h", "expected sqlite://path, redis://"),
        ("hourhand.db", "expected sqlite://path, redis://"),
        (
            "redis://",
            "expected redis://host:port/db or rediss://host:port/db, got \"redis://\": there is no host",
        ),
        ("sqlite://", "expected sqlite://path, got \"sqlite://\": there is no path"),
        ("localhost:6379", "got \"localhost:6379\""),
        (
            "redis://h:x",
            "expected redis://host:port/db or rediss://host:port/db, got \"redis://h:x\": the port",
        ),
        ("redis://h/abc", "the database"),
        ("redis://::1:6379", "in brackets"),
        ("redis://:a#b@h", "got \"redis://***@h\": a # / ? @ or % in a user name"),
    ] {
        let text = run(&[("store", url)], &[], "").expect_err(url).to_string();
        assert!(text.starts_with("--store: ") && text.contains(part), "{url}: {text}");
    }
}

#[test]
fn an_embedded_store_is_a_file_in_the_working_directory_or_anywhere() {
    for (url, file) in [("sqlite://a b/@x.db", "a b/@x.db"), ("sqlite:///srv/h.db", "/srv/h.db")] {
        let store = StoreSettings::resolve(&layers(&[("store", url)], &[], "").expect("valid"));
        let store = store.expect("valid");
        assert_eq!(store.url.file(), Some(std::path::Path::new(file)), "{url}");
        assert_eq!((store.url.to_string().as_str(), store.url.has_secret()), (url, false));
    }
    let redis = StoreUrl::new("redis://h").expect("valid");
    assert_eq!(redis.file(), None);
}

#[test]
fn a_durability_that_the_store_cannot_keep_is_refused() {
    let text = run(&[("durability", "some")], &[], "").expect_err("no level").to_string();
    assert!(text.starts_with("--durability: expected full or normal"), "{text}");
    let text = run(&[], &[("REDIS_URL", "redis://:S3cr3t@h")], "durability = 'full'\n").expect_err("Redis");
    let text = text.to_string();
    assert!(text.starts_with("hourhand.toml:1: durability: only the embedded store"), "{text}");
    assert!(text.contains("the store is redis://***@h (by REDIS_URL)"), "{text}");
}

#[test]
fn replicas_that_the_store_has_not_got_are_refused() {
    let redis = ("REDIS_URL", "redis://h");
    let settings = run(&[], &[redis], "wait_replicas = 2\n").expect("valid");
    assert_eq!(settings.store.wait_replicas, 2);
    for text in ["some", "-1", "101", "1.5", ""] {
        let problems = run(&[("wait_replicas", text)], &[redis], "").expect_err(text).to_string();
        assert!(
            problems.starts_with("--wait-replicas: expected a whole number of replicas from 0 to 100"),
            "{problems}"
        );
    }
    assert!(run(&[], &[], "wait_replicas = 0\n").is_ok(), "there is nobody to wait for");
    let text = run(&[], &[], "wait_replicas = 1\n").expect_err("embedded").to_string();
    assert!(text.starts_with("hourhand.toml:1: wait_replicas: only a Redis store has replicas"), "{text}");
    assert!(text.contains("the store is sqlite://hourhand.db (by default)"), "{text}");
}

#[test]
fn the_url_of_sentinels_is_read_and_shown_without_its_secrets() {
    for (url, shown) in [
        ("redis+sentinel://a,b:1/mymaster", "redis+sentinel://a,b:1/mymaster"),
        ("rediss+sentinel://u:S3cr3t@a/m/2", "rediss+sentinel://***@a/m/2"),
        ("redis+sentinel://a/m?sentinel_password=S3cr3t", "redis+sentinel://a/m?***"),
        (
            "redis+sentinel://u:S3cr3t@a/m/2?sentinel_user=x&sentinel_password=S3cr3t",
            "redis+sentinel://***@a/m/2?***",
        ),
    ] {
        let store = StoreUrl::new(url).expect("valid");
        assert_eq!((store.to_string().as_str(), store.has_secret()), (shown, url != shown));
        assert_eq!(store.file(), None);
    }
    for (url, said) in [
        ("redis+sentinel://", "expected redis+sentinel://host:port,host:port/master-name/db"),
        ("redis+sentinel://a,b", "behind the sentinels stands /master-name"),
        ("redis+sentinel://a/m?sentinel_password=x@S3cr3t", "%40"),
        ("redis+sentinel://:x?S3cr3t@a/m", "%3F"),
        ("redis+sentinel://a/m&sentinel_password=S3cr3t", "got \"redis+sentinel://a/m***\""),
        ("redis+sentinel://a/m;sentinel_user=u?sentinel_password=S3cr3t", "got \"redis+sentinel://a/m***\""),
        ("rediss+sentinel://a/m/sentinel_password=S3cr3t", "got \"rediss+sentinel://***\""),
        ("redis+sentinel://a/m/sentinel_password/S3cr3t", "got \"redis+sentinel://***\""),
        ("redis+sentinel://a&sentinel_password=S3cr3t", "got \"redis+sentinel://a***\""),
        ("redis+sentinel://a,sentinel_password:S3cr3t", "got \"redis+sentinel://***\""),
        ("redis+sentinel://a&auth=S3cr3t/m", "got \"redis+sentinel://a***\""),
        ("redis+sentinel://a/m=S3cr3t", "got \"redis+sentinel://a/m***\""),
        ("redis://:S3cr3t@a:1,b:2/0", "redis+sentinel://"),
        ("sentinel://a/m", "redis+sentinel://host:port,host:port/master-name/db"),
    ] {
        let problem = StoreUrl::new(url).map(|url| url.to_string()).expect_err(url);
        assert!(problem.contains(said) && !problem.contains("S3cr3t"), "{url}: {problem}");
    }
}

#[test]
fn no_message_holds_a_password() {
    let secret = "S3cr3t@x/y?z";
    for url in [
        format!("redis://:{secret}@host:1/0"),
        format!("rediss://user:{secret}@host"),
        format!("sqlite://:{secret}@host"),
        format!("redis://:a#{secret}@host"),
        format!("redis://:{secret}@host:port"),
        format!("user:{secret}@host"),
        format!("redis:{secret}"),
        "redis:S3cr3t".to_owned(),
        "redis:/S3cr3t@host".to_owned(),
    ] {
        for layered in [layers(&[("store", &url)], &[], ""), layers(&[], &[], &format!("store = '{url}'"))] {
            let layered = layered.expect("valid layers");
            let text = match StoreSettings::resolve(&layered) {
                Ok(settings) => format!("{settings:?} {} {layered:?}", settings.url),
                Err(problems) => format!("{problems} {problems:?} {layered:?}"),
            };
            assert!(!text.contains("S3cr3t"), "{text}");
            assert!(text.contains("host") || !url.contains("://"), "{text}");
        }
    }
    let broken = layers(&[], &[], "store = 'redis://:S3cr3t@h' x").expect_err("broken").to_string();
    assert!(!broken.contains("S3cr3t"), "{broken}");
}

#[test]
fn variables_of_others_do_no_harm() {
    use std::os::unix::ffi::OsStringExt;
    let bytes = || OsString::from_vec(vec![0xff]);
    let flags = || BTreeMap::from([("store", "redis://h".to_owned())]);
    assert!(Layers::new(flags(), [("OTHER".into(), bytes()), (bytes(), "x".into())]).is_ok());
    let error = Layers::new(flags(), [("HOURHAND_LEASE".into(), bytes())]).expect_err("not UTF-8");
    assert_eq!(error.to_string(), "HOURHAND_LEASE: expected UTF-8 text, got other bytes");
}

//! `fetch`: sends the requests of its payload one after the other, and tells what became of each. For tests.

use hourhand_sdk::prelude::*;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ask {
    #[serde(default = "get")]
    method: String,
    url: String,
    #[serde(default)]
    headers: Vec<(String, String)>,
    body: Option<String>,
    /// Instead of `body`: so many bytes.
    body_bytes: Option<usize>,
    timeout_ms: Option<u64>,
    #[serde(default)]
    redirects: u32,
    /// Fails when this request does.
    #[serde(default)]
    must: bool,
}

fn get() -> String {
    "GET".to_owned()
}

#[derive(Serialize, Default)]
struct Got {
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body: String,
    bytes: usize,
    /// The name of the error's kind.
    error: Option<String>,
    text: Option<String>,
}

#[handler]
fn fetch(ctx: &Context, asks: Vec<Ask>) -> Result<Vec<Got>, Failure> {
    asks.into_iter().map(|ask| one(ctx, ask)).collect()
}

fn one(ctx: &Context, ask: Ask) -> Result<Got, Failure> {
    let mut request = ctx.http().request(ask.method, &ask.url).follow_redirects(ask.redirects);
    for (name, value) in ask.headers {
        request = request.header(name, value);
    }
    if let Some(body) = ask.body {
        request = request.body(body);
    }
    if let Some(bytes) = ask.body_bytes {
        request = request.body(vec![b'x'; bytes]);
    }
    if let Some(ms) = ask.timeout_ms {
        request = request.timeout(milliseconds(ms));
    }
    match request.send() {
        Ok(response) => {
            let headers =
                response.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let text = String::from_utf8_lossy(response.bytes());
            let (status, bytes) = (Some(response.status()), response.bytes().len());
            let body = text.chars().take(2_000).collect();
            Ok(Got { status, headers, body, bytes, ..Got::default() })
        }
        Err(error) if ask.must => Err(error.into()),
        Err(error) => {
            let debug = format!("{error:?}");
            let kind = debug.split(['(', ' ']).next().unwrap_or_default().to_owned();
            Ok(Got { error: Some(kind), text: Some(error.to_string()), ..Got::default() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_each_request_is_told() {
        let host = TestHost::new().http(|request| match request.body.len() {
            0 => Answer::new(204).header("X-A", "b"),
            3 => Answer::failed(HttpError::Limit("too much".to_owned())),
            n => Answer::new(200).body(n.to_string()),
        });
        let run = host.run::<fetch>(
            r#"[{"url": "http://a/"}, {"url": "http://a/", "method": "PUT", "body": "abc"},
                {"url": "http://a/", "body_bytes": 9}]"#,
        );
        let got: serde_json::Value = run.result();
        assert_eq!((&got[0]["status"], &got[0]["headers"][0][0]), (&204.into(), &"x-a".into()));
        assert_eq!((&got[1]["error"], &got[1]["text"]), (&"Limit".into(), &"too much".into()));
        assert_eq!(got[2]["body"], "9");
        let failed = host.run::<fetch>(r#"[{"url": "http://a/", "body": "abc", "must": true}]"#);
        assert_eq!(failed.outcome, Outcome::Failed(Failure::retry("too much")));
    }
}

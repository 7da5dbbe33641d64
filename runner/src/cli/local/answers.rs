//! Answers to HTTP requests in place of the network, from a fixture: which request gets which response, or fails.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::Value;

use super::{brief, content};
use crate::sandbox::HttpAnswers;

/// Largest file of answers, in bytes.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How many requests are remembered.
const REQUESTS_MAX: usize = 1_000;
/// Characters of a body in a message.
const BODY_SHOWN_MAX: usize = 200;

/// A file of answers.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AnswersFile {
    http: Vec<AnswerSaid>,
}

/// An answer as it is written.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::cli) struct AnswerSaid {
    request: RequestSaid,
    response: Option<ResponseSaid>,
    /// The request fails, with this text.
    failure: Option<String>,
    /// So many requests get it; all when none.
    times: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestSaid {
    /// Any when none.
    method: Option<String>,
    /// A `*` at its end stands for anything.
    url: String,
    /// Headers that must be so.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body as a value of JSON.
    body: Option<Value>,
    /// What the body contains.
    body_contains: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResponseSaid {
    /// 200 when none.
    status: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The body as a value of JSON, sent as `application/json`.
    body: Option<Value>,
    body_text: Option<String>,
    body_base64: Option<String>,
}

/// An answer, checked.
#[derive(Debug, Clone)]
struct Answer {
    method: Option<Method>,
    url: String,
    /// It ends in `*`.
    is_prefix: bool,
    headers: Vec<(HeaderName, String)>,
    body: Option<Value>,
    body_contains: Option<String>,
    reply: Result<Response<Bytes>, String>,
    left: Option<u32>,
}

/// What answers the requests of one job.
#[derive(Debug)]
pub(in crate::cli) struct Answers {
    answers: Mutex<Vec<Answer>>,
    requests: Mutex<Vec<String>>,
}

/// Reads a file of answers: TOML or, when it is called `*.json`, JSON.
///
/// # Errors
/// The file, and what is wrong in it.
pub(in crate::cli) fn read(file: &Path) -> Result<Vec<AnswerSaid>, String> {
    let wrong = |message: String| format!("{}: {}", file.display(), message.trim_end());
    let facts = std::fs::metadata(file).map_err(|error| wrong(error.to_string()))?;
    if facts.len() > FILE_BYTES_MAX {
        return Err(wrong(format!("expected at most {FILE_BYTES_MAX} bytes, got {}", facts.len())));
    }
    let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
    let is_json = file.extension().is_some_and(|extension| extension == "json");
    let said: Result<AnswersFile, String> = if is_json {
        serde_json::from_str(&text).map_err(|error| error.to_string())
    } else {
        toml::from_str(&text).map_err(|error| error.to_string())
    };
    let said = said.map_err(wrong)?.http;
    Answers::new(&said).map_err(wrong)?;
    Ok(said)
}

impl Answers {
    /// Answers that nobody has had yet.
    ///
    /// # Errors
    /// Which of them makes no sense, and why.
    pub(in crate::cli) fn new(said: &[AnswerSaid]) -> Result<Self, String> {
        let answers = said.iter().enumerate().map(|(at, said)| {
            Answer::new(said)
                .map_err(|error| format!("http answer {} ({}): {error}", at + 1, said.request.url))
        });
        let answers = answers.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { answers: Mutex::new(answers), requests: Mutex::default() })
    }

    /// The requests that were made, in order: `POST https://bank.example/charge`.
    pub(in crate::cli) fn requests(&self) -> Vec<String> {
        self.requests.lock().clone()
    }

    fn find(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, String> {
        let url = normal(&request.uri().to_string());
        let line = format!("{} {url}", request.method());
        let mut requests = self.requests.lock();
        if requests.len() < REQUESTS_MAX {
            requests.push(line.clone());
        }
        let mut answers = self.answers.lock();
        let fits = answers.iter_mut().find(|answer| answer.left != Some(0) && answer.is_for(request, &url));
        let Some(answer) = fits else {
            let body = brief(&String::from_utf8_lossy(request.body()), BODY_SHOWN_MAX);
            return Err(format!("no fixture answers {line} with the body {body:?}"));
        };
        answer.left = answer.left.map(|left| left - 1);
        answer.reply.clone()
    }
}

#[async_trait]
impl HttpAnswers for Answers {
    async fn answer(&self, request: Request<Bytes>) -> Result<Response<Bytes>, String> {
        self.find(&request)
    }
}

impl Answer {
    fn new(said: &AnswerSaid) -> Result<Self, String> {
        let request = &said.request;
        let method = request.method.as_ref().map(|method| {
            Method::from_bytes(method.as_bytes())
                .map_err(|_| format!("method: expected one such as GET, got {method:?}"))
        });
        let (url, is_prefix) = match request.url.strip_suffix('*') {
            Some(start) => (start, true),
            None => (request.url.as_str(), false),
        };
        let absolute = url.starts_with("http://") || url.starts_with("https://");
        if !absolute {
            return Err(format!(
                "url: expected one such as https://api.example.com/pay, got {:?}",
                request.url
            ));
        }
        let headers = request.headers.iter().map(|(name, value)| Ok((header_name(name)?, value.clone())));
        let reply = match (&said.response, &said.failure) {
            (Some(response), None) => Ok(reply(response)?),
            (None, Some(failure)) => Err(failure.clone()),
            _ => return Err("expected either response or failure".to_owned()),
        };
        Ok(Self {
            method: method.transpose()?,
            url: normal(url),
            is_prefix,
            headers: headers.collect::<Result<_, String>>()?,
            body: request.body.clone(),
            body_contains: request.body_contains.clone(),
            reply,
            left: said.times,
        })
    }

    fn is_for(&self, request: &Request<Bytes>, url: &str) -> bool {
        let named = if self.is_prefix { url.starts_with(&self.url) } else { url == self.url };
        let text = || String::from_utf8_lossy(request.body());
        let header = |(name, value): &(HeaderName, String)| {
            request.headers().get_all(name).iter().any(|got| got.as_bytes() == value.as_bytes())
        };
        named
            && self.method.as_ref().is_none_or(|method| method == request.method())
            && self.headers.iter().all(header)
            && self.body_contains.as_ref().is_none_or(|part| text().contains(part))
            && self.body.as_ref().is_none_or(|body| {
                serde_json::from_slice(request.body()).is_ok_and(|got: Value| content::same(body, &got))
            })
    }
}

fn header_name(name: &str) -> Result<HeaderName, String> {
    name.parse().map_err(|_| format!("headers: {name:?} is no header's name"))
}

fn reply(said: &ResponseSaid) -> Result<Response<Bytes>, String> {
    let bodies = [said.body.is_some(), said.body_text.is_some(), said.body_base64.is_some()];
    if bodies.iter().filter(|given| **given).count() > 1 {
        return Err("expected one of body, body_text and body_base64, got several".to_owned());
    }
    let body = match (&said.body, &said.body_text, &said.body_base64) {
        (Some(value), _, _) => Bytes::from(value.to_string()),
        (_, Some(text), _) => Bytes::from(text.clone()),
        (_, _, Some(text)) => content::from_base64(text).map_err(|error| format!("body_base64: {error}"))?,
        (None, None, None) => Bytes::new(),
    };
    let mut response = Response::new(body);
    let status = said.status.unwrap_or(200);
    *response.status_mut() =
        StatusCode::from_u16(status).map_err(|_| format!("status: expected 100 to 999, got {status}"))?;
    if said.body.is_some() {
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, json);
    }
    for (name, value) in &said.headers {
        let value =
            HeaderValue::from_str(value).map_err(|_| format!("headers: {value:?} is no header's value"))?;
        response.headers_mut().insert(header_name(name)?, value);
    }
    Ok(response)
}

/// A URL with its scheme and host in lower case, without the port that the scheme has anyway, and with a path.
fn normal(url: &str) -> String {
    let Ok(uri) = url.parse::<Uri>() else { return url.to_owned() };
    let (Some(scheme), Some(host)) = (uri.scheme_str(), uri.host()) else { return url.to_owned() };
    let usual = if scheme == "https" { 443 } else { 80 };
    let port =
        uri.port_u16().filter(|port| *port != usual).map(|port| format!(":{port}")).unwrap_or_default();
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("{}://{}{port}{path}", scheme.to_lowercase(), host.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANK: &str = r#"
        [[http]]
        request = { method = "POST", url = "https://Bank.example:443/charge", headers = { key = "1" }, body = { cents = 7 } }
        response = { status = 503, body = { error = "closed" } }
        times = 1

        [[http]]
        request = { url = "https://bank.example/*", body_contains = "cents" }
        response = { headers = { retry-after = "3" }, body_text = "ok" }

        [[http]]
        request = { url = "https://bank.example/down" }
        failure = "connection refused"
    "#;

    fn said(text: &str) -> Result<Vec<AnswerSaid>, String> {
        toml::from_str::<AnswersFile>(text).map(|file| file.http).map_err(|error| error.to_string())
    }

    fn ask(
        answers: &Answers,
        method: &str,
        url: &str,
        body: &'static str,
    ) -> Result<Response<Bytes>, String> {
        let request = Request::builder().method(method).uri(url).header("key", "1");
        answers.find(&request.body(Bytes::from(body)).expect("a request"))
    }

    #[test]
    fn the_first_answer_that_fits_and_is_left_is_given() {
        let answers = Answers::new(&said(BANK).expect("answers")).expect("sound");
        let charge = || ask(&answers, "POST", "https://bank.example/charge", "{ \"cents\": 7.0 }");
        let first = charge().expect("answered");
        assert_eq!((first.status().as_u16(), &first.body()[..]), (503, &b"{\"error\":\"closed\"}"[..]));
        assert_eq!(first.headers()["content-type"], "application/json");
        let second = charge().expect("answered");
        assert_eq!((second.status().as_u16(), &second.body()[..]), (200, &b"ok"[..]));
        assert_eq!(second.headers()["retry-after"], "3");
        assert_eq!(
            ask(&answers, "GET", "https://bank.example/down", "").expect_err("fails"),
            "connection refused"
        );
        let none = ask(&answers, "GET", "https://bank.example/else?a=1", "x").expect_err("no answer");
        assert_eq!(none, "no fixture answers GET https://bank.example/else?a=1 with the body \"x\"");
        assert_eq!(answers.requests().len(), 4);
        assert_eq!(answers.requests()[0], "POST https://bank.example/charge");
    }

    #[test]
    fn what_makes_no_sense_is_said() {
        for (answer, part) in [
            ("request = { url = '/pay' }\nresponse = {}", "expected one such as https://"),
            ("request = { url = 'http://a', method = 'G T' }\nresponse = {}", "method: expected"),
            ("request = { url = 'http://a' }", "either response or failure"),
            ("request = { url = 'http://a' }\nresponse = {}\nfailure = 'x'", "either response or failure"),
            ("request = { url = 'http://a' }\nresponse = { status = 7 }", "status: expected"),
            ("request = { url = 'http://a' }\nresponse = { body = 1, body_text = '' }", "got several"),
            ("request = { url = 'http://a' }\nresponse = { headers = { 'a b' = '' } }", "no header's name"),
            ("request = { url = 'http://a' }\nresponse = { body_base64 = '%' }", "body_base64"),
            ("request = { url = 'http://a', path = '/' }\nresponse = {}", "unknown field"),
        ] {
            let text = format!("[[http]]\n{answer}");
            let message = match said(&text) {
                Ok(said) => Answers::new(&said).expect_err(answer),
                Err(message) => message,
            };
            assert!(message.contains(part), "{answer}: {message}");
        }
    }
}

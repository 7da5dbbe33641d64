//! `boom`: fails with `{"msg": "..."}`, to be tried again.

use hourhand_sdk::prelude::*;

#[derive(Deserialize)]
struct Boom {
    msg: String,
}

#[handler]
fn boom(boom: Boom) -> Result<(), Failure> {
    Err(Failure::retry(boom.msg))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_fails_with_its_message() {
        let run = TestHost::new().run::<boom>(r#"{"msg":"no route"}"#);
        assert_eq!(run.outcome, Outcome::Failed(Failure::retry("no route")));
    }
}

//! A plain command, without the SDK: what a payload `do VERB WORDS` asks for, and every other payload comes back.

use std::collections::hash_map::RandomState;
use std::error::Error;
use std::hash::BuildHasher;
use std::io::{self, Read, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{env, process, thread};

fn main() -> Result<(), Box<dyn Error>> {
    if let Ok(code) = env::var("HOURHAND_META_EARLY") {
        process::exit(code.parse()?);
    }
    let mut payload = Vec::new();
    io::stdin().read_to_end(&mut payload)?;
    match payload.strip_prefix(b"do ") {
        Some(asked) => perform(std::str::from_utf8(asked)?),
        None => Ok(io::stdout().write_all(&payload)?),
    }
}

fn perform(asked: &str) -> Result<(), Box<dyn Error>> {
    let (verb, words) = asked.split_once(' ').unwrap_or((asked, ""));
    match verb {
        "return" => println!("returned"),
        "error" => return Err(words.into()),
        "exit" => {
            let (code, words) = words.split_once(' ').unwrap_or((words, ""));
            print!("half a result");
            if !words.is_empty() {
                eprintln!("{words}");
            }
            process::exit(code.parse()?);
        }
        "panic" => panic!("{words}"),
        "abort" => {
            eprintln!("{words}");
            process::abort();
        }
        "trap" => {
            eprintln!("{words}");
            // Far outside of its memory.
            let nowhere = std::hint::black_box(usize::MAX - 64) as *const u8;
            println!("{}", unsafe { nowhere.read_volatile() });
        }
        "variables" => {
            println!("{}", env::args().collect::<Vec<_>>().join(" "));
            env::vars().for_each(|(name, value)| println!("{name}={value}"));
        }
        "print" => fill(&mut io::stdout(), words.parse()?)?,
        "scream" => fill(&mut io::stderr(), words.parse()?)?,
        "spin" => loop {
            std::hint::spin_loop();
        },
        "sleep" => thread::sleep(Duration::from_millis(words.parse()?)),
        "grow" => {
            let grown = vec![1_u8; words.parse::<usize>()? << 20];
            println!("{}", grown.iter().map(|byte| u64::from(*byte)).sum::<u64>() >> 20);
        }
        "lots" => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos();
            println!("{} {now}", RandomState::new().hash_one(1));
        }
        other => return Err(format!("what is {other}?").into()),
    }
    Ok(())
}

fn fill(to: &mut impl Write, mut bytes: usize) -> io::Result<()> {
    while bytes > 0 {
        let piece = bytes.min(1_000);
        to.write_all(&[b'x'; 1_000][..piece])?;
        bytes -= piece;
    }
    Ok(())
}

//! Admission, driven together with the real consumer and cache against fake producers.

mod budget;
mod cost;
mod life;
mod limits;
mod model;
mod outcomes;
mod producers;
mod ready;
mod retry;
mod room;
mod sources;
mod world;

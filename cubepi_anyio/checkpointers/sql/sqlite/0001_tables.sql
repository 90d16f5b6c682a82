create table cubepi_threads (
    id integer primary key,
    thread_id text not null unique,
    parent_thread_id text,
    claim_token text,
    claim_expires_at real
);

create table cubepi_messages (
    seq integer primary key,
    thread integer not null,
    message_id text not null,
    run_id text,
    body text not null,
    unique (thread, message_id)
);

create table cubepi_runs (
    thread integer not null,
    run_id text not null,
    ending text,
    ended_as integer not null default 0,
    primary key (thread, run_id)
) without rowid;

create table cubepi_requests (
    seq integer primary key,
    thread integer not null,
    request_id text not null,
    body text not null,
    answer text,
    unique (thread, request_id)
);

create table cubepi_extra (
    thread integer not null,
    name text not null,
    value text not null,
    primary key (thread, name)
) without rowid;

create table if not exists cubepi_schema (version int not null) engine = InnoDB;

-- Ids are bytes: as text, two ids that differ in case, accents or trailing blanks would be the same.
create table if not exists cubepi_threads (
    id bigint not null auto_increment primary key,
    thread_id varbinary(512) not null,
    parent_thread_id varbinary(512),
    claim_token varbinary(64),
    claim_expires_at double,
    unique key (thread_id)
) engine = InnoDB default charset = utf8mb4;

create table if not exists cubepi_messages (
    seq bigint not null auto_increment primary key,
    thread bigint not null,
    message_id varbinary(512) not null,
    run_id varbinary(512),
    body longtext not null,
    unique key (thread, message_id)
) engine = InnoDB default charset = utf8mb4;

create table if not exists cubepi_runs (
    thread bigint not null,
    run_id varbinary(512) not null,
    ending varbinary(32),
    ended_as bigint not null default 0,
    primary key (thread, run_id)
) engine = InnoDB default charset = utf8mb4;

create table if not exists cubepi_requests (
    seq bigint not null auto_increment primary key,
    thread bigint not null,
    request_id varbinary(512) not null,
    body longtext not null,
    answer longtext,
    unique key (thread, request_id)
) engine = InnoDB default charset = utf8mb4;

create table if not exists cubepi_extra (
    thread bigint not null,
    name varbinary(512) not null,
    value longtext not null,
    primary key (thread, name)
) engine = InnoDB default charset = utf8mb4;

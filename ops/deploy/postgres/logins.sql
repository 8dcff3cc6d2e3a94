-- Before the first `millrace migrate`, by a superuser: who logs in, and as what. Processes take the
-- roles as they connect; the owner of the tables only migrates. Change the passwords.
CREATE ROLE millrace_api NOLOGIN;
CREATE ROLE millrace_worker NOLOGIN;
CREATE ROLE millrace_owner LOGIN PASSWORD 'CHANGE' IN ROLE millrace_api, millrace_worker;
CREATE ROLE api LOGIN PASSWORD 'CHANGE' IN ROLE millrace_api;
CREATE ROLE worker LOGIN PASSWORD 'CHANGE' IN ROLE millrace_worker;
CREATE DATABASE millrace OWNER millrace_owner;

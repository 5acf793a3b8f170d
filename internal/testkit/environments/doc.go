// Package environments holds the engines for Redis and PostgreSQL against servers, proxies and
// settings as other people have them. Run it with make environments; it prints a table.
package environments

// Package board has the test of the alerts and the board in contrib: Prometheus scrapes instances of
// examples/service while locks are contended, lost and refused.
package board

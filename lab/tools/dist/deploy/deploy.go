// Package deploy has the tests of the files in contrib/packaging/: units of systemd, manifests of
// Kubernetes and crontabs.
package deploy

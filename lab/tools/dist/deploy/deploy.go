// Package deploy has the tests of the files in packaging/: units of systemd, manifests of
// Kubernetes and crontabs.
package deploy

// Package storetests has the tests of packages etcdrecords and natsrecords, and those of locks in their
// records. The tests start clusters of etcd and NATS as children of the test binary.
package storetests

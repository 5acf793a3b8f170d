package main

// scenarios are the published faults, in the order of the page.
var scenarios = []scenario{
	{
		name: "redsync-cancelled", peer: "redsync", module: "github.com/go-redsync/redsync/v4",
		fault:  "a Lock whose context ends leaves its keys on the nodes until they expire",
		thread: "https://github.com/googleforgames/open-match/issues/1576",
		run:    redsyncCancelled,
	},
	{
		name: "rueidislock-hang", peer: "rueidislock", module: "github.com/redis/rueidis",
		fault:  "after one late reply, WithContext waits for a lock that nobody holds",
		thread: "https://github.com/redis/rueidis/issues/653",
		run:    rueidislockHang,
	},
}

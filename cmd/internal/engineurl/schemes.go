//go:build unix

package engineurl

// schemes has every scheme. Those without parse are of stores that programs can add.
var schemes = []scheme{
	{form: "file:///path[?network=allow][&group=NAME]", parse: parser(parseDirectory)},
	{form: "mem:", parse: parser(parseMemory)},
	{form: "redis://[user:password@]host[:port][/db]", parse: parser(parseRedis)},
	{form: "rediss://[user:password@]host[:port][/db]", parse: parser(parseRedis)},
	{form: "redis+unix://[user:password@]/path/of/socket[?db=N]", parse: parser(parseRedis)},
	{form: "redis+sentinel://[user:password@]sentinel1,sentinel2,.../master[/db]", parse: parser(parseRedis)},
	{form: "redis+cluster://[user:password@]host1,host2,...", parse: parser(parseRedis)},
	{form: "redlock://[user:password@]host1,host2,host3[/db]", parse: parser(parseRedlock)},
	{form: "postgres://[user:password@]host[:port]/database", parse: parser(parsePostgres)},
	{form: "postgresql://[user:password@]host[:port]/database", parse: parser(parsePostgres)},
	{form: "postgres+rows://[user:password@]host[:port]/database[?table=NAME][&listen=URL]", parse: parser(parseRows)},
	{form: "mysql://[user:password@]host[:port]/database[?table=NAME]", parse: parser(parseMySQL)},
	{form: "mariadb://[user:password@]host[:port]/database[?table=NAME]", parse: parser(parseMySQL)},
	{form: "s3://bucket[/prefix][?region=NAME][&endpoint=https://host]", parse: parser(parseS3)},
	{form: "k8s://namespace[?server=URL&ca=FILE&token-file=FILE]", parse: parser(parseKube)},
	{form: "etcd://[user:password@]host1,host2,...[/prefix]"},
	{form: "nats://[user:password@]host1,host2,...[/bucket]"},
	{form: "azblob://account/container[/prefix][?endpoint=https://host]"},
	{form: "gs://bucket[/prefix]"},
	{form: "dynamodb://table[?region=NAME][&endpoint=https://host]"},
}

// AddAll adds the engines that would make fencelock too large, but need no other packages. It must be called
// before the other functions.
func AddAll() {
	schemeOf("azblob").parse = parser(parseAzure)
	schemeOf("gs").parse = parser(parseGoogle)
	schemeOf("dynamodb").parse = parser(parseDynamo)
}

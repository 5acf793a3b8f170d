package bucket

import (
	"cmp"
	"encoding/xml"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Dialect is what differs between object stores.
type Dialect struct {
	Name    string                                                    // of the store, in errors
	Rights  string                                                    // what a login needs
	Pace    time.Duration                                             // between two writes of one object; 0 if the store has no such limit
	header  map[string]string                                         // of each request
	written map[string]string                                         // of each write
	version string                                                    // the header with the version of an object
	known   func(version string) bool                                 // whether a version can be one of the store's
	when    func(version string) (header, value string)               // the condition of a write
	list    func(prefix, token string) url.Values                     // the query of a list
	page    func(body []byte) (keys []string, next string, err error) // parses a list
}

// S3 is the dialect of Amazon S3, and of the many stores with its interface.
func S3() *Dialect {
	return &Dialect{Name: "S3", Rights: "s3:GetObject, s3:PutObject and s3:ListBucket", version: "Etag", known: any, when: etag, list: listS3, page: pageS3}
}

// Azure is the dialect of Azure Blob Storage. Its header needs a version of the interface.
func Azure() *Dialect {
	return &Dialect{
		Name: "Azure Blob Storage", Rights: "the role Storage Blob Data Contributor, or a signature with the permissions rwl",
		header: map[string]string{"X-Ms-Version": "2023-11-03"}, written: map[string]string{"X-Ms-Blob-Type": "BlockBlob"},
		version: "Etag", known: any, when: etag,
		list: func(prefix, token string) url.Values {
			q := url.Values{"restype": {"container"}, "comp": {"list"}, "prefix": {prefix}}
			if token != "" {
				q.Set("marker", token)
			}
			return q
		},
		page: func(body []byte) (keys []string, next string, err error) {
			var p struct {
				Blobs struct{ Blob []struct{ Name string } }
				Next  string `xml:"NextMarker"`
			}
			err = xml.Unmarshal(body, &p)
			for _, b := range p.Blobs.Blob {
				keys = append(keys, b.Name)
			}
			return keys, p.Next, err
		},
	}
}

// Google is the dialect of the XML interface of Google Cloud Storage. A version is a number. Objects that
// everybody may read could be cached.
func Google() *Dialect {
	return &Dialect{
		Name: "Google Cloud Storage", Rights: "storage.objects.get, create, delete (to replace) and list: the role Storage Object User", Pace: time.Second,
		written: map[string]string{"Cache-Control": "no-store"}, version: "X-Goog-Generation",
		known: func(version string) bool {
			_, err := strconv.ParseUint(version, 10, 64)
			return version == "" || err == nil
		},
		when: func(version string) (string, string) { return "X-Goog-If-Generation-Match", cmp.Or(version, "0") },
		list: listS3, page: pageS3,
	}
}

func any(string) bool { return true }

func etag(version string) (header, value string) {
	if version == "" {
		return "If-None-Match", "*"
	}
	return "If-Match", version
}

func listS3(prefix, token string) url.Values {
	q := url.Values{"list-type": {"2"}, "encoding-type": {"url"}, "prefix": {prefix}}
	if token != "" {
		q.Set("continuation-token", token)
	}
	return q
}

func pageS3(body []byte) (keys []string, next string, err error) {
	var p struct {
		Contents []struct{ Key string }
		Next     string `xml:"NextContinuationToken"`
	}
	err = xml.Unmarshal(body, &p)
	for _, c := range p.Contents {
		key, wrong := url.QueryUnescape(c.Key)
		err = errors.Join(err, wrong)
		keys = append(keys, key)
	}
	return keys, p.Next, err
}

// changed reports whether an answer to a write means that its condition does not hold. Azure answers 409 if
// there is a blob and must be none, and also if another write of it is running.
func changed(status int, header http.Header) bool {
	return status == http.StatusPreconditionFailed || status == http.StatusNotFound || header.Get("X-Ms-Error-Code") == "BlobAlreadyExists"
}

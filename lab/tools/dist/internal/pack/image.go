package pack

import (
	"encoding/json"
	"time"
)

// An Image is a container image with one layer.
type Image struct {
	OS, Arch   string
	Root       Tree
	User       string // UID:GID
	Entrypoint []string
	Env        []string
	Labels     map[string]string
	Name, Tag  string
	When       time.Time
}

const (
	typeLayer    = "application/vnd.oci.image.layer.v1.tar+gzip"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeIndex    = "application/vnd.oci.image.index.v1+json"
)

// These are the parts of the OCI image format that an Image uses.
type (
	descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Platform    *platform         `json:"platform,omitempty"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	platform struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	}
	manifest struct {
		Schema    int          `json:"schemaVersion"`
		MediaType string       `json:"mediaType"`
		Config    descriptor   `json:"config"`
		Layers    []descriptor `json:"layers"`
	}
	index struct {
		Schema    int          `json:"schemaVersion"`
		MediaType string       `json:"mediaType"`
		Manifests []descriptor `json:"manifests"`
	}
	config struct {
		Created time.Time `json:"created"`
		platform
		Config  runConfig `json:"config"`
		RootFS  rootFS    `json:"rootfs"`
		History []history `json:"history"`
	}
	runConfig struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		Labels     map[string]string `json:"Labels"`
	}
	rootFS struct {
		Type string   `json:"type"`
		IDs  []string `json:"diff_ids"`
	}
	history struct {
		Created time.Time `json:"created"`
		By      string    `json:"created_by"`
	}
	// dockerImage is an entry of manifest.json, which docker load reads.
	dockerImage struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
)

// Archive returns the image as a tar archive that is both an OCI archive (podman load, skopeo) and
// a Docker archive (docker load).
func (m Image) Archive() ([]byte, error) {
	var files Tree
	blob := func(mediaType string, data []byte) descriptor {
		files.Add("blobs/sha256/"+Sum(data), data)
		return descriptor{MediaType: mediaType, Digest: "sha256:" + Sum(data), Size: len(data)}
	}
	write := func(mediaType string, v any) (descriptor, error) {
		data, err := json.Marshal(v)
		return blob(mediaType, data), err
	}
	plain, err := m.Root.Tar(m.When)
	if err != nil {
		return nil, err
	}
	packed, err := Gzip(plain)
	if err != nil {
		return nil, err
	}
	layer := blob(typeLayer, packed)
	on := platform{m.Arch, m.OS}
	created := m.When.UTC()
	cfg, err := write(typeConfig, config{
		Created: created, platform: on, Config: runConfig{m.User, m.Env, m.Entrypoint, m.Labels},
		RootFS: rootFS{"layers", []string{"sha256:" + Sum(plain)}}, History: []history{{created, "make dist"}},
	})
	if err != nil {
		return nil, err
	}
	man, err := write(typeManifest, manifest{2, typeManifest, cfg, []descriptor{layer}})
	if err != nil {
		return nil, err
	}
	man.Platform = &on
	man.Annotations = map[string]string{"org.opencontainers.image.ref.name": m.Tag}
	blobName := func(d descriptor) string { return "blobs/sha256/" + d.Digest[len("sha256:"):] }
	for name, v := range map[string]any{
		"oci-layout": map[string]string{"imageLayoutVersion": "1.0.0"},
		"index.json": index{2, typeIndex, []descriptor{man}},
		"manifest.json": []dockerImage{{
			blobName(cfg), []string{m.Name + ":" + m.Tag}, []string{blobName(layer)},
		}},
	} {
		data, err := json.Marshal(v)
		if err != nil {
			return nil, err
		}
		files.Add(name, data)
	}
	return files.Tar(m.When)
}

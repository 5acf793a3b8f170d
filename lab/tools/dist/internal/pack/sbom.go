package pack

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A Binary is a program and what an SBOM says of it.
type Binary struct {
	Name     string // the archive that has it, such as fencelock_1.2.3_linux_amd64
	Version  string // with the v
	Data     []byte
	Info     *debug.BuildInfo
	Releases string // URL of the directory that has the files of this release
}

// These are the parts of SPDX 2.3 that the SBOM uses.
type (
	spdxDocument struct {
		Version       string             `json:"spdxVersion"`
		License       string             `json:"dataLicense"`
		ID            string             `json:"SPDXID"`
		Name          string             `json:"name"`
		Namespace     string             `json:"documentNamespace"`
		Created       spdxCreation       `json:"creationInfo"`
		Packages      []spdxPackage      `json:"packages"`
		Files         []spdxFile         `json:"files"`
		Relationships []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		Name          string         `json:"name"`
		ID            string         `json:"SPDXID"`
		Version       string         `json:"versionInfo"`
		Supplier      string         `json:"supplier,omitempty"`
		Download      string         `json:"downloadLocation"`
		FilesAnalyzed bool           `json:"filesAnalyzed"`
		Concluded     string         `json:"licenseConcluded"`
		Declared      string         `json:"licenseDeclared"`
		Copyright     string         `json:"copyrightText"`
		Comment       string         `json:"comment,omitempty"`
		References    []spdxExternal `json:"externalRefs"`
	}
	spdxExternal struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxFile struct {
		Name      string         `json:"fileName"`
		ID        string         `json:"SPDXID"`
		Types     []string       `json:"fileTypes"`
		Checksums []spdxChecksum `json:"checksums"`
		Concluded string         `json:"licenseConcluded"`
		Copyright string         `json:"copyrightText"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRelationship struct {
		From string `json:"spdxElementId"`
		Type string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

const noAssertion = "NOASSERTION"

// SBOM returns the software bill of materials of a binary as SPDX 2.3 in JSON: the program, its
// modules with the versions that were linked, and the standard library of Go.
func SBOM(b Binary, when time.Time) ([]byte, error) {
	program := golangPackage("SPDXRef-fencelock", b.Info.Main.Path, b.Version)
	program.Supplier = "Organization: fencelock"
	program.Download = b.Releases + "/" + b.Name + ".tar.gz"
	program.Concluded, program.Declared = "Apache-2.0", "Apache-2.0"
	binary := spdxFile{
		Name: "./bin/fencelock", ID: "SPDXRef-binary", Types: []string{"BINARY"}, Concluded: noAssertion, Copyright: noAssertion,
		Checksums: []spdxChecksum{{"SHA1", sum1(b.Data)}, {"SHA256", Sum(b.Data)}}, // SPDX asks for SHA1
	}
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: b.Name,
		// The checksum makes the name of the document unique, as SPDX asks.
		Namespace: b.Releases + "/" + b.Name + ".spdx.json/" + Sum(b.Data),
		Created:   spdxCreation{when.UTC().Format(time.RFC3339), []string{"Organization: fencelock", "Tool: fencelock-tools-dist"}},
		Packages:  []spdxPackage{program},
		Files:     []spdxFile{binary},
		Relationships: []spdxRelationship{
			{"SPDXRef-DOCUMENT", "DESCRIBES", program.ID}, {binary.ID, "GENERATED_FROM", program.ID},
		},
	}
	modules := []*debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(b.Info.GoVersion, "go")}}
	for _, m := range append(modules, b.Modules()...) {
		if m.Replace != nil {
			return nil, fmt.Errorf("module %s is replaced: a release uses published modules", m.Path)
		}
		p := golangPackage("SPDXRef-"+idOf(m.Path), m.Path, m.Version)
		if m.Sum != "" {
			p.Comment = "go.sum " + m.Sum
		}
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships,
			spdxRelationship{program.ID, "DEPENDS_ON", p.ID}, spdxRelationship{binary.ID, "STATIC_LINK", p.ID})
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	return append(text, '\n'), err
}

// Modules returns the modules of others that are linked into a binary. The module around that of the
// program is the rest of the program: in a checkout, it is replaced by its directory.
func (b Binary) Modules() []*debug.Module {
	return slices.DeleteFunc(slices.Clone(b.Info.Deps), func(m *debug.Module) bool {
		return m.Replace != nil && strings.HasPrefix(b.Info.Main.Path, m.Path+"/")
	})
}

// golangPackage describes a module of Go.
func golangPackage(id, path, version string) spdxPackage {
	purl := "pkg:golang/" + path + "@" + url.PathEscape(version)
	return spdxPackage{
		Name: path, ID: id, Version: version, Download: noAssertion, Concluded: noAssertion, Declared: noAssertion,
		Copyright: noAssertion, References: []spdxExternal{{"PACKAGE-MANAGER", "purl", purl}},
	}
}

// idOf replaces what an identifier of SPDX must not have.
func idOf(path string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, path)
}

func sum1(data []byte) string {
	sum := sha1.Sum(data)
	return hex.EncodeToString(sum[:])
}

package deploy_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A podSelector selects pods, as spec.selector and spec.target of Chaos Mesh do.
type podSelector struct {
	Namespaces     []string          `json:"namespaces"`
	LabelSelectors map[string]string `json:"labelSelectors"`
}

// A networkChaos has the fields of Chaos Mesh's NetworkChaos that docs/chaos.md uses.
type networkChaos struct {
	APIVersion string                           `json:"apiVersion"`
	Kind       string                           `json:"kind"`
	Metadata   struct{ Name, Namespace string } `json:"metadata"`
	Spec       struct {
		Action    string      `json:"action"`
		Mode      string      `json:"mode"`
		Selector  podSelector `json:"selector"`
		Direction string      `json:"direction"`
		Target    struct {
			Mode     string      `json:"mode"`
			Selector podSelector `json:"selector"`
		} `json:"target"`
		Duration string `json:"duration"`
	} `json:"spec"`
}

// TestChaosMesh: the manifest on the page has known fields only, cuts off one pod of the service, and
// lasts for longer than the default TTL, so that the lock passes to another pod meanwhile.
func TestChaosMesh(t *testing.T) {
	block := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindStringSubmatch(read(t, "../../docs/chaos.md"))
	if block == nil {
		t.Fatal("docs/chaos.md has no manifest")
	}
	var m networkChaos
	if err := yaml.UnmarshalStrict([]byte(block[1]), &m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "chaos-mesh.org/v1alpha1" || m.Kind != "NetworkChaos" || m.Spec.Action != "partition" {
		t.Errorf("%s %s with the action %q", m.APIVersion, m.Kind, m.Spec.Action)
	}
	if m.Spec.Mode != "one" || m.Spec.Target.Mode != "all" || m.Spec.Direction != "both" {
		t.Errorf("cuts off %s from %s in the direction %s", m.Spec.Mode, m.Spec.Target.Mode, m.Spec.Direction)
	}
	for _, s := range []podSelector{m.Spec.Selector, m.Spec.Target.Selector} {
		if strings.Join(s.Namespaces, " ") != m.Metadata.Namespace || len(s.LabelSelectors) != 1 {
			t.Errorf("selects %v in namespace %s", s, m.Metadata.Namespace)
		}
	}
	if d, err := time.ParseDuration(m.Spec.Duration); err != nil || d <= 30*time.Second {
		t.Errorf("lasts for %s: %v", m.Spec.Duration, err)
	}
	if err := yaml.UnmarshalStrict([]byte(strings.Replace(block[1], "mode: one", "modus: one", 1)), &m); err == nil {
		t.Error("an unknown field is accepted")
	}
}

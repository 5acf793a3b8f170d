package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func TestActionlint(t *testing.T) {
	workflows, err := filepath.Glob("../../../.github/workflows/*.yml")
	if err != nil || len(workflows) < 3 {
		t.Fatalf("%d workflows, %v", len(workflows), err)
	}
	command(t, "go", append([]string{"tool", "actionlint", "-no-color"}, workflows...)...)
}

// The steps of the workflows call make and nothing else, and the targets exist.
func TestWorkflowsOnlyCallMake(t *testing.T) {
	var targets []string
	for _, m := range regexp.MustCompile(`(?m)^([a-z -]+):`).FindAllStringSubmatch(string(read(t, "../../../Makefile")), -1) {
		targets = append(targets, strings.Fields(m[1])...)
	}
	workflows, err := filepath.Glob("../../../.github/workflows/*.yml")
	if err != nil {
		t.Fatal(err)
	}
	allowed := []string{"actions/checkout", "actions/setup-go"}
	for _, name := range workflows {
		var workflow struct {
			Jobs map[string]struct {
				Steps []struct{ Run, Uses string }
			}
		}
		if err := yaml.Unmarshal(read(t, name), &workflow); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for job, j := range workflow.Jobs {
			made := 0
			for _, step := range j.Steps {
				action, _, _ := strings.Cut(step.Uses, "@")
				words := strings.Fields(step.Run)
				switch {
				case step.Run == "" && slices.Contains(allowed, action):
				case len(words) == 2 && words[0] == "make" && slices.Contains(targets, words[1]):
					made++
				default:
					t.Errorf("%s, job %s: the step %q%q is neither a target of make nor one of %q", name, job, step.Run, step.Uses, allowed)
				}
			}
			if made == 0 {
				t.Errorf("%s, job %s: no target of make", name, job)
			}
		}
	}
}

func TestIssueTemplates(t *testing.T) {
	names, err := filepath.Glob("../../../.github/ISSUE_TEMPLATE/*.yml")
	if err != nil || len(names) < 3 {
		t.Fatalf("%d templates, %v", len(names), err)
	}
	types := []string{"markdown", "textarea", "input", "dropdown", "checkboxes"}
	for _, name := range names {
		var form struct {
			Name, Description string
			Labels            []string
			Body              []struct {
				Type, ID   string
				Attributes struct {
					Label, Value, Description, Placeholder, Render string
					Options                                        []string
				}
				Validations struct{ Required bool }
			}
		}
		if filepath.Base(name) == "config.yml" {
			var config struct {
				Blank    bool                                `json:"blank_issues_enabled"`
				Contacts []struct{ Name, URL, About string } `json:"contact_links"`
			}
			if err := yaml.UnmarshalStrict(read(t, name), &config); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, c := range config.Contacts {
				if below, ok := strings.CutPrefix(c.URL, homepage+"/blob/main/"); ok {
					page, _, _ := strings.Cut(below, "#")
					if _, err := os.Stat(filepath.Join("../../..", page)); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
			continue
		}
		if err := yaml.UnmarshalStrict(read(t, name), &form); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 {
			t.Errorf("%s needs a name, a description and a body", name)
		}
		ids := map[string]bool{}
		for _, b := range form.Body {
			if !slices.Contains(types, b.Type) || b.Type != "markdown" && (b.ID == "" || b.Attributes.Label == "" || ids[b.ID]) {
				t.Errorf("%s: a field of type %q needs an id of its own and a label: %+v", name, b.Type, b)
			}
			ids[b.ID] = true
		}
	}
}

package cloudlogin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"
)

// storageScope is what a token of Google is for.
const storageScope = "https://www.googleapis.com/auth/devstorage.read_write"

// Google returns the login of this process at Google Cloud: the configuration of workload identity federation in
// the file GOOGLE_APPLICATION_CREDENTIALS, or the service account of the instance or the pod.
func Google(client *http.Client) *Bearer {
	return bearer(func(ctx context.Context) (token, error) { return googleToken(ctx, client) })
}

func googleToken(ctx context.Context, client *http.Client) (token, error) {
	if file := os.Getenv("GOOGLE_APPLICATION_CREDENTIALS"); file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return token{}, err
		}
		var f federation
		if err := json.Unmarshal(text, &f); err != nil || f.Type != "external_account" || f.Source.File == "" {
			return token{}, fmt.Errorf("%w: %s must have the type external_account and credential_source.file (workload identity federation)", ErrNone, file)
		}
		return f.token(ctx, client)
	}
	host := cmp.Or(os.Getenv("GCE_METADATA_HOST"), "metadata.google.internal")
	return get(ctx, client, "http://"+host+"/computeMetadata/v1/instance/service-accounts/default/token", map[string]string{"Metadata-Flavor": "Google"})
}

// federation is a configuration of workload identity federation.
type federation struct {
	Type        string `json:"type"`
	Audience    string `json:"audience"`
	SubjectType string `json:"subject_token_type"`
	TokenURL    string `json:"token_url"`
	Impersonate string `json:"service_account_impersonation_url"`
	Source      struct {
		File   string `json:"file"`
		Format struct {
			Type  string `json:"type"`
			Field string `json:"subject_token_field_name"`
		} `json:"format"`
	} `json:"credential_source"`
}

// token exchanges the token in the file, and then impersonates a service account, if there is one.
func (f federation) token(ctx context.Context, client *http.Client) (token, error) {
	subject, err := readToken(f.Source.File)
	if err == nil && f.Source.Format.Type == "json" {
		var fields map[string]any
		err = json.Unmarshal([]byte(subject), &fields)
		subject, _ = fields[f.Source.Format.Field].(string)
	}
	if err != nil {
		return token{}, err
	}
	scope := storageScope
	if f.Impersonate != "" {
		scope = "https://www.googleapis.com/auth/cloud-platform"
	}
	t, err := post(ctx, client, f.TokenURL, url.Values{
		"grant_type": {"urn:ietf:params:oauth:grant-type:token-exchange"}, "requested_token_type": {"urn:ietf:params:oauth:token-type:access_token"},
		"audience": {f.Audience}, "scope": {scope}, "subject_token_type": {f.SubjectType}, "subject_token": {subject},
	})
	if err != nil || f.Impersonate == "" {
		return t, err
	}
	body, err := json.Marshal(map[string]any{"scope": []string{storageScope}})
	if err != nil {
		return token{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, f.Impersonate, bytes.NewReader(body))
	if err != nil {
		return token{}, err
	}
	r.Header.Set("Authorization", "Bearer "+t.text)
	r.Header.Set("Content-Type", "application/json")
	var out struct {
		Token   string    `json:"accessToken"`
		Expires time.Time `json:"expireTime"`
	}
	if err := ask(client, r, &out); err != nil {
		return token{}, err
	}
	return token{out.Token, out.Expires}, nil
}

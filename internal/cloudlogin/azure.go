package cloudlogin

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// storage is what a token of Azure is for.
const storage = "https://storage.azure.com/"

// Azure returns the login of this process at Azure: a federated token (AZURE_FEDERATED_TOKEN_FILE) or a secret
// (AZURE_CLIENT_SECRET) of the application AZURE_CLIENT_ID in AZURE_TENANT_ID, the identity of the app service
// (IDENTITY_ENDPOINT), or that of the instance.
func Azure(client *http.Client) *Bearer {
	return bearer(func(ctx context.Context) (token, error) { return azureToken(ctx, client) })
}

func azureToken(ctx context.Context, client *http.Client) (token, error) {
	id, tenant := os.Getenv("AZURE_CLIENT_ID"), os.Getenv("AZURE_TENANT_ID")
	file, secret := os.Getenv("AZURE_FEDERATED_TOKEN_FILE"), os.Getenv("AZURE_CLIENT_SECRET")
	if id != "" && tenant != "" && (file != "" || secret != "") {
		form := url.Values{"grant_type": {"client_credentials"}, "client_id": {id}, "scope": {storage + ".default"}}
		if file != "" {
			assertion, err := readToken(file)
			if err != nil {
				return token{}, err
			}
			form.Set("client_assertion", assertion)
			form.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		} else {
			form.Set("client_secret", secret)
		}
		authority := strings.TrimSuffix(cmp.Or(os.Getenv("AZURE_AUTHORITY_HOST"), "https://login.microsoftonline.com"), "/")
		return post(ctx, client, authority+"/"+url.PathEscape(tenant)+"/oauth2/v2.0/token", form)
	}
	query := url.Values{"resource": {storage}}
	if id != "" {
		query.Set("client_id", id)
	}
	if service := os.Getenv("IDENTITY_ENDPOINT"); service != "" {
		query.Set("api-version", "2019-08-01")
		return get(ctx, client, service+"?"+query.Encode(), map[string]string{"X-Identity-Header": os.Getenv("IDENTITY_HEADER")})
	}
	query.Set("api-version", "2018-02-01")
	host := strings.TrimSuffix(cmp.Or(os.Getenv("AZURE_POD_IDENTITY_AUTHORITY_HOST"), "http://169.254.169.254"), "/")
	return get(ctx, client, host+"/metadata/identity/oauth2/token?"+query.Encode(), map[string]string{"Metadata": "true"})
}

// SharedAccess returns a function that signs requests with a shared access signature, a query.
func SharedAccess(signature string) func(*http.Request, string) error {
	signature = strings.TrimPrefix(signature, "?")
	return func(r *http.Request, _ string) error {
		if r.URL.RawQuery != "" {
			r.URL.RawQuery += "&"
		}
		r.URL.RawQuery += signature
		return nil
	}
}

// SharedKey returns a function that signs requests with the key of an account, in base64.
func SharedKey(account, key string) func(*http.Request, string) error {
	secret, wrong := base64.StdEncoding.DecodeString(key)
	return func(r *http.Request, _ string) error {
		if wrong != nil {
			return fmt.Errorf("%w: the key of the account is no base64", ErrNone)
		}
		r.Header.Set("X-Ms-Date", time.Now().UTC().Format(http.TimeFormat))
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(stringToSign(account, r)))
		r.Header.Set("Authorization", "SharedKey "+account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
		return nil
	}
}

// stringToSign returns the text that a shared key signs: https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key
func stringToSign(account string, r *http.Request) string {
	length := ""
	if r.ContentLength > 0 {
		length = strconv.FormatInt(r.ContentLength, 10)
	}
	h := r.Header
	lines := []string{
		r.Method, h.Get("Content-Encoding"), h.Get("Content-Language"), length, h.Get("Content-MD5"), h.Get("Content-Type"),
		"", // Date, for which there is x-ms-date
		h.Get("If-Modified-Since"), h.Get("If-Match"), h.Get("If-None-Match"), h.Get("If-Unmodified-Since"), h.Get("Range"),
	}
	var own, query []string
	for name := range h {
		if n := strings.ToLower(name); strings.HasPrefix(n, "x-ms-") {
			own = append(own, n+":"+h.Get(name))
		}
	}
	for name, values := range r.URL.Query() {
		slices.Sort(values)
		query = append(query, strings.ToLower(name)+":"+strings.Join(values, ","))
	}
	slices.Sort(own)
	slices.Sort(query)
	return strings.Join(slices.Concat(lines, own, []string{"/" + account + r.URL.EscapedPath()}, query), "\n")
}

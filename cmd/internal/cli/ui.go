//go:build unix

package cli

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/fencelock/fencelock"
	"github.com/fencelock/fencelock/driver"
	"github.com/fencelock/fencelock/observe/dashboard"
)

// uiCmd is the verb ui.
type uiCmd struct {
	Prefix     string
	Listen     string
	AllowBreak bool
	TokenFile  string   // "" makes a token
	Elections  []string // names
	Hosts      []string // of the page beside addresses and localhost
}

func newUI(a *App) *cobra.Command {
	c := new(uiCmd)
	cmd := &cobra.Command{
		Use: "ui [flags] [PREFIX]", GroupID: SeeLocks, Short: "Serve a page that shows the locks live.", SuggestFor: []string{"dashboard", "web", "serve"},
		Long: `Serves a page with the holders and waiters of every name until INT or TERM, and prints its URL. The page reads the server only while a window shows it. /metrics beside it has counts for Prometheus, also of holders that use another library.

The page is read-only and has no login: on an address that others can reach, they see names, hosts and notes. With --allow-break, the page has a button that takes a lock away from one holder, and the URL has a token that the button needs. On an address that others can reach, --allow-break needs --token-file.`,
		Example: `fencelock ui
fencelock ui invoice: --listen 127.0.0.1:8080
fencelock ui --election billing
fencelock ui --listen :7654 --allow-break --token-file ui-token`,
		Annotations: map[string]string{
			argumentRows: Table([]Row{prefixRow}),
			ExitCodes:    Table([]Row{{"71", "the address cannot be used, or the token cannot be read"}}),
		},
		Args: Arguments(&c.Prefix), ValidArgsFunction: a.lockNames, PreRunE: Checked(c.check),
		RunE: func(*cobra.Command, []string) error { return c.Run(a) },
	}
	f := cmd.Flags()
	f.StringVar(&c.Listen, "listen", "127.0.0.1:7654", "`ADDRESS` of the page. Port 0 means a free one.")
	f.BoolVar(&c.AllowBreak, "allow-break", false, "Let the page take locks away.")
	text(f, &c.TokenFile, "token-file", "With --allow-break: `FILE` with the token of at least 16 characters, instead of a new one.")
	f.Func("election", "`NAME` of an election. The page recognises elections that have a candidate; of this one it also says from the start that nobody leads. Can be repeated.", func(s string) error {
		c.Elections = append(c.Elections, s)
		return driver.CheckName(s)
	})
	f.Func("host", "Host `NAME` under which the page is reached, if it is not an address or localhost. Can be repeated.", func(s string) error {
		c.Hosts = append(c.Hosts, s)
		return notEmpty(s)
	})
	return cmd
}

// check validates the flags.
func (c *uiCmd) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	switch address, parsed := netip.ParseAddr(host); {
	case err != nil:
		return fmt.Errorf("--listen: %w", err)
	case c.TokenFile != "" && !c.AllowBreak:
		return errors.New("--token-file can be used with --allow-break only")
	case c.AllowBreak && c.TokenFile == "" && host != "localhost" && (parsed != nil || !address.IsLoopback()):
		return errors.New("--allow-break needs --token-file on an address that others can reach")
	}
	for _, name := range c.Elections {
		if !strings.HasPrefix(name, c.Prefix) {
			return fmt.Errorf("--election: the page shows only names that start with %s", c.Prefix)
		}
	}
	return nil
}

// Run serves the page until INT or TERM.
func (c *uiCmd) Run(a *App) error {
	return a.untilEnded(a.Context, func(ctx context.Context, engine driver.Engine) error {
		cfg := &dashboard.Config{
			Prefix: c.Prefix, Elections: c.Elections, Hosts: c.Hosts,
			Logger: slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		}
		token, err := c.token()
		if err != nil {
			return Exit(exitStart, err)
		}
		if c.AllowBreak {
			cfg.MayBreak = func(r *http.Request) error { return checkToken(r, token) }
		}
		return c.serve(ctx, a, dashboard.New(fencelock.New(engine, nil), cfg), token)
	})
}

// token returns the token for breaking, "" if the page breaks nothing.
func (c *uiCmd) token() (string, error) {
	switch {
	case !c.AllowBreak:
		return "", nil
	case c.TokenFile == "":
		return rand.Text(), nil
	}
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if len(token) < 16 {
		return "", fmt.Errorf("the token in %s has fewer than 16 characters", c.TokenFile)
	}
	return token, nil
}

// checkToken returns an error unless a request has the token.
func checkToken(r *http.Request, token string) error {
	given, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
		return errors.New("the token is missing or wrong")
	}
	return nil
}

// serve serves the page until ctx ends. A token that was made here is printed with the URL, in the
// part that browsers do not send.
func (c *uiCmd) serve(ctx context.Context, a *App, page *dashboard.Handler, token string) error {
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return Exit(exitStart, fmt.Errorf("--listen: %w", err))
	}
	server := http.Server{Handler: page, ReadHeaderTimeout: probeLimit, IdleTimeout: time.Minute}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()
	view := uiView{URL: "http://" + listener.Addr().String() + "/"}
	if token != "" && c.TokenFile == "" {
		view.URL += "#token=" + token
	}
	if err := a.Print(view, view.URL+"\n"); err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// uiView is what ui --json prints. docs/cli-json.md documents it.
type uiView struct {
	URL string `json:"url"` // of the page, with the token that the button needs
}

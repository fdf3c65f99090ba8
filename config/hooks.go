package config

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"dbcontroller.dev/internal/base/limits"
)

// Defaults of hooks.
const (
	DefaultHookTimeout = 10 * time.Second
	DefaultHookGiveUp  = 24 * time.Hour
)

// Hook receives events, by requests to an address or by a command.
type Hook struct {
	Name    string
	URL     Secret   // empty: use Command
	Secret  Secret   // signs the requests; empty: they are unsigned
	Command []string // program and arguments; empty: use URL
	Events  []string // wanted events; empty: all
	Timeout time.Duration
	GiveUp  time.Duration // undelivered events are dropped after this time
}

// HookEvents are the events that a hook can select. Package hooks creates them.
var HookEvents = []string{"begin", "ready", "retry", "switched", "aborted", "parked", "fence-broken", "completed"}

var hookName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,31}$`)

func (r *reader) hooks(n node) []Hook {
	items := r.list(n)
	// Every event goes to every hook, so their number is limited.
	if len(items) > limits.Hooks {
		r.fail(n, fmt.Sprint(len(items)), fmt.Sprintf("want at most %d hooks", limits.Hooks))
	}
	var all []Hook
	for _, item := range items {
		m := r.mapping(item, "name", "url", "secret", "command", "events", "timeout", "giveUp")
		h := Hook{
			Name:    r.required(m["name"], "a name such as pager"),
			Timeout: r.duration(m["timeout"], DefaultHookTimeout, time.Second, 5*time.Minute),
			GiveUp:  r.duration(m["giveUp"], DefaultHookGiveUp, time.Minute, 7*24*time.Hour),
		}
		if !hookName.MatchString(h.Name) {
			r.fail(m["name"], h.Name, "want up to 32 lower-case letters, digits and dashes")
		}
		// Deliveries are recorded by name.
		if before := slices.IndexFunc(all, func(o Hook) bool { return o.Name == h.Name }); before >= 0 {
			r.fail(m["name"], h.Name, fmt.Sprintf("%s in line %d has it already, want a name for each hook", items[before].key, items[before].line))
		}
		for j, e := range r.list(m["events"]) {
			h.Events = append(h.Events, r.choice(e, HookEvents...))
			if slices.Contains(h.Events[:j], h.Events[j]) {
				r.fail(e, shown(h.Events[j]), "given twice")
			}
		}
		// Exactly one of url and command, and a secret only with a url.
		switch _, address := r.plain(m["url"]); {
		case address && m["command"].value != nil:
			r.fail(m["command"], "", "want url or command, and not both")
		case address:
			r.address(m, &h)
		case m["secret"].value != nil:
			r.fail(m["secret"], "", "want no such key: only requests to a url are signed")
		default:
			h.Command = r.command(m["command"], "url, or ")
		}
		all = append(all, h)
	}
	return all
}

// address reads the URL of a webhook. Errors do not show it, because the whole URL may be a secret.
func (r *reader) address(m map[string]node, h *Hook) {
	const form = "https://host/path or http://host:port/path"
	address := r.required(m["url"], form)
	h.URL = NewKey(address)
	u, err := url.Parse(address)
	// A user in the address would be shown in logs.
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		r.fail(m["url"], "", "want "+form+", without a user")
	}
	secret, given := r.text(m["secret"])
	h.Secret = NewKey(secret)
	// The prefix whsec_ is the form of the Standard Webhooks specification.
	switch encoded, standard := strings.CutPrefix(secret, "whsec_"); {
	case !given:
	case len(secret) < 16:
		r.fail(m["secret"], "", "want at least 16 characters that nobody can guess, such as those of 'openssl rand -base64 24'")
	case standard:
		if _, err := base64.StdEncoding.DecodeString(encoded); err != nil {
			r.fail(m["secret"], "", "want base64 after whsec_")
		}
	}
}

// command reads a program with its arguments. or names what could be there instead.
func (r *reader) command(n node, or string) (argv []string) {
	for _, item := range r.list(n) {
		arg, _ := r.text(item)
		argv = append(argv, arg)
		if strings.ContainsRune(arg, 0) {
			r.fail(item, "", "want an argument without a zero byte")
		}
	}
	// Without a shell, the program must have a full path.
	switch {
	case len(argv) == 0:
		r.fail(n, "", "missing, want "+or+"a list with the path of a program and its arguments")
	case !filepath.IsAbs(argv[0]):
		r.fail(n, shown(argv[0]), "want the path of a program from the root first")
	}
	return argv
}

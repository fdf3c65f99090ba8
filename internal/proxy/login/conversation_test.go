package login

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/xdg-go/scram"
)

// users makes the users shop and ca,l=1 with the password secret, and sha1 who has SCRAM-SHA-1 alone.
func users(t testing.TB) (us *Users, folder string) {
	t.Helper()
	folder = t.TempDir()
	var list []Account
	for i, name := range []string{"shop", "ca,l=1"} {
		text, err := New("admin", name, "secret", i == 0)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, write(t, folder, name, text))
	}
	us, err := Open(list, nil)
	if err != nil {
		t.Fatal(err)
	}
	return us, folder
}

func write(t testing.TB, folder, name string, text []byte) Account {
	t.Helper()
	file := filepath.Join(folder, name+".json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return Account{"admin", name, file}
}

// client is the side of a driver.
func client(t testing.TB, mechanism, name, password string) *scram.ClientConversation {
	t.Helper()
	hash := scram.SHA256
	if mechanism == SHA1 {
		hash, password = scram.SHA1, digest(name, password)
	}
	c, err := hash.NewClientUnprepped(name, password, "")
	if err != nil {
		t.Fatal(err)
	}
	return c.NewConversation()
}

// logIn holds a conversation. It returns the user, and the error of the server.
func logIn(t testing.TB, us *Users, mechanism, name, password string, short bool) (*User, error) {
	t.Helper()
	driver := client(t, mechanism, name, password)
	first, err := driver.Step("")
	if err != nil {
		t.Fatal(err)
	}
	c, answer, err := us.Start("admin", mechanism, []byte(first), short)
	if err != nil {
		return nil, err
	}
	proof, err := driver.Step(string(answer))
	if err != nil {
		t.Fatal(err)
	}
	if !c.Guesses() {
		t.Error("the proof is no guess")
	}
	answer, done, err := c.Next([]byte(proof))
	if err != nil {
		return nil, err
	}
	if _, err := driver.Step(string(answer)); err != nil || !driver.Valid() {
		t.Errorf("the driver does not trust the server: %v", err)
	}
	if done != short || c.Guesses() {
		t.Errorf("done is %t after the proof", done)
	}
	if !short {
		if _, done, err = c.Next(nil); err != nil || !done {
			t.Errorf("done %t, %v after the empty message", done, err)
		}
	}
	return c.User(), nil
}

// TestLogIn: the client of the drivers' library logs in with the right password, and only with it. An unknown
// user fails as late as a wrong password, with the same words.
func TestLogIn(t *testing.T) {
	t.Parallel()
	us, _ := users(t)
	for _, short := range []bool{true, false} {
		for _, mechanism := range []string{SHA256, SHA1} {
			if u, err := logIn(t, us, mechanism, "shop", "secret", short); err != nil || u == nil || u.Name != "shop" {
				t.Errorf("%s, short %t: %v, %v", mechanism, short, u, err)
			}
		}
		if u, err := logIn(t, us, SHA256, "ca,l=1", "secret", short); err != nil || u == nil || u.Name != "ca,l=1" {
			t.Errorf("a name with a comma: %v, %v", u, err)
		}
	}
	_, wrong := logIn(t, us, SHA256, "shop", "Secret", true)
	_, unknown := logIn(t, us, SHA256, "nobody", "secret", true)
	if wrong == nil || unknown == nil || wrong.Error() != unknown.Error() {
		t.Errorf("a wrong password: %v; an unknown user: %v", wrong, unknown)
	}
	var refused *MechanismError
	if _, err := logIn(t, us, SHA1, "ca,l=1", "secret", true); !errors.As(err, &refused) {
		t.Errorf("a mechanism that the user lacks: %v", err)
	}
	if _, _, err := us.Start("admin", "MONGODB-X509", nil, true); !errors.As(err, &refused) {
		t.Errorf("another mechanism: %v", err)
	}
}

// TestNoEnumeration: what strangers see of an unknown name is the same each time, and looks like a user.
func TestNoEnumeration(t *testing.T) {
	t.Parallel()
	us, _ := users(t)
	salts := map[string]bool{}
	var both, one bool
	for i := range 100 {
		name := "nobody" + strings.Repeat("x", i)
		_, v := us.find("admin", name)
		_, again := us.find("admin", name)
		_, other := us.find("shop", name)
		has := v.names()
		both, one = both || len(has) == 2, one || len(has) == 1
		for _, m := range has {
			if v[m].Salt != again[m].Salt || v[m].Salt == other[m].Salt || salts[v[m].Salt] || v[m].Iters != us.order[0].latest()[SHA256].Iters && m == SHA256 {
				t.Errorf("%s %s: %+v, then %+v", name, m, v[m], again[m])
			}
			salts[v[m].Salt] = true
			if len(v[m].Salt) != map[string]int{SHA256: 28, SHA1: 16}[m] {
				t.Errorf("a salt of %d bytes", len(v[m].Salt))
			}
		}
	}
	if !both || !one {
		t.Error("unknown users do not have the mechanisms of all users")
	}
	if got := us.Mechanisms("admin", "shop"); !slices.Equal(got, []string{SHA256, SHA1}) {
		t.Errorf("%v", got)
	}
}

// TestRemovedUser: without its file a user cannot log in, and is no longer active. With a file it is again, also
// with another password.
func TestRemovedUser(t *testing.T) {
	t.Parallel()
	us, folder := users(t)
	u, err := logIn(t, us, SHA256, "shop", "secret", true)
	if err != nil || !u.Active() {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(folder, "shop.json")); err != nil {
		t.Fatal(err)
	}
	until(t, "not active", func() bool { return !u.Active() })
	if _, err := logIn(t, us, SHA256, "shop", "secret", true); err == nil {
		t.Error("a removed user has logged in")
	}
	text, err := New("admin", "shop", "other", false)
	if err != nil {
		t.Fatal(err)
	}
	write(t, folder, "shop", text)
	until(t, "the new password", func() bool {
		_, err := logIn(t, us, SHA256, "shop", "other", true)
		return err == nil
	})
	if _, err := logIn(t, us, SHA256, "shop", "secret", true); err == nil {
		t.Error("the former password is right")
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what)
		}
	}
}

// TestHostile: a client that does not keep to the protocol fails, whatever it sends.
func TestHostile(t *testing.T) {
	t.Parallel()
	us, _ := users(t)
	for _, first := range []string{
		"", "n", "n,,", "n,,n=shop", "n,,n=shop,", "n,,r=x,n=shop", "x,,n=shop,r=abc", "n,,m=x,n=shop,r=abc", "n,,n=,r=abc",
		"p=tls-unique,,n=shop,r=abc", "p=tls-exporter,,n=shop,r=abc", "p=nonsense,,n=shop,r=abc", // no channel binding is offered
		"n,a=root,n=shop,r=abc", "n,a==,n=shop,r=abc", "n,,n=sh=op,r=abc", "n,,n=shop=,r=abc",
		"n,,n=" + strings.Repeat("x", longestPayload) + ",r=abc", "\x00\xff", strings.Repeat(",", longestPayload),
	} {
		c, _, err := us.Start("admin", SHA256, []byte(first), true)
		if err == nil || c != nil {
			t.Errorf("%.40q begins a conversation", first)
		} else if strings.Contains(err.Error(), "op") && strings.Contains(err.Error(), "sh=") {
			t.Errorf("%.40q is quoted: %v", first, err)
		}
	}
	begin := func() (*scram.ClientConversation, *Conversation, string) {
		driver := client(t, SHA256, "shop", "secret")
		first, _ := driver.Step("")
		c, answer, err := us.Start("admin", SHA256, []byte(first), true)
		if err != nil {
			t.Fatal(err)
		}
		proof, err := driver.Step(string(answer))
		if err != nil {
			t.Fatal(err)
		}
		return driver, c, proof
	}
	_, _, another := begin() // of another conversation: a replay
	for what, spoil := range map[string]func(proof string) string{
		"nothing":                   func(string) string { return "" },
		"a replay":                  func(string) string { return another },
		"another flag":              func(p string) string { return strings.Replace(p, "c=biws", "c=eSws", 1) },
		"channel binding":           func(p string) string { return strings.Replace(p, "c=biws", "c=cD10bHMtdW5pcXVlLCw=", 1) },
		"another nonce":             func(p string) string { return strings.Replace(p, "r=", "r=x", 1) },
		"a nonce that is cut":       func(p string) string { i := strings.Index(p, ",p="); return p[:i-1] + p[i:] },
		"an extension":              func(p string) string { return strings.Replace(p, ",p=", ",x=y,p=", 1) },
		"no proof":                  func(p string) string { return p[:strings.Index(p, ",p=")] },
		"an empty proof":            func(p string) string { return p[:strings.Index(p, ",p=")] + ",p=" },
		"a proof of another length": func(p string) string { return p[:strings.Index(p, ",p=")] + ",p=YWJj" },
		"a proof of zeros":          func(p string) string { return p[:strings.Index(p, ",p=")] + ",p=" + strings.Repeat("A", 43) + "=" },
		"the first message again":   func(string) string { return "n,,n=shop,r=abc" },
		"a huge one":                func(p string) string { return p + strings.Repeat("x", longestPayload) },
	} {
		_, c, proof := begin()
		if answer, done, err := c.Next([]byte(spoil(proof))); err == nil || done || answer != nil || c.User() != nil {
			t.Errorf("%s: %q, %t, %v, %v", what, answer, done, err, c.User())
		}
		// The conversation is over, also for the right proof.
		if _, done, err := c.Next([]byte(proof)); err == nil || done || c.User() != nil {
			t.Errorf("%s: the right proof comes afterwards, and is taken", what)
		}
	}
	_, c, proof := begin()
	c.began = c.began.Add(-longestConversation - time.Second)
	if _, _, err := c.Next([]byte(proof)); err == nil || c.User() != nil {
		t.Error("a slow client has logged in")
	}
	// Without the short form an empty message must come last.
	_, c, proof = begin()
	c.short = false
	if _, done, err := c.Next([]byte(proof)); err != nil || done {
		t.Errorf("%t, %v", done, err)
	}
	if _, done, err := c.Next([]byte("x")); err == nil || done {
		t.Error("a third message with content")
	}
}

// FuzzConversation: whatever a client sends, it does not log in, and no error quotes it in more than a line.
func FuzzConversation(f *testing.F) {
	us, _ := users(f)
	f.Add([]byte("n,,n=shop,r=abc"), []byte("c=biws,r=abc,p=YWJj"), []byte(""))
	f.Add([]byte("n,a=shop,n=ca=2Cl=3D1,r=abc"), []byte("c=biws,r=abc,p="), []byte("x"))
	f.Add([]byte("y,,n=nobody,r=,x=y"), []byte("c=eSws,r="), []byte("v="))
	f.Fuzz(func(t *testing.T, first, proof, last []byte) {
		for _, mechanism := range []string{SHA256, SHA1} {
			c, _, err := us.Start("admin", mechanism, first, len(last) == 0)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%q", err)
				}
				continue
			}
			for _, m := range [][]byte{proof, last, proof} {
				if _, done, err := c.Next(m); done || err == nil {
					t.Errorf("%q is taken", m)
				}
			}
			if c.User() != nil {
				t.Error("logged in")
			}
		}
	})
}

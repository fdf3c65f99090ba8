package config

import "strings"

// ProxyUser is a user of a proxy, and the login with which the proxy serves it at every cluster.
type ProxyUser struct {
	Name     string
	Database string // authSource of the application's connection string
	Verifier string // file
	Login    ProxyLogin
}

// ProxyLogin is a user of the databases.
type ProxyLogin struct {
	User     string
	Database string
	Password Secret
}

// mostProxyUsers bounds the users of a proxy. Each has connections of its own to each server.
const mostProxyUsers = 100

func (r *reader) proxyUsers(n node) (out []ProxyUser) {
	for _, item := range r.list(n) {
		out = append(out, r.proxyUser(item, out))
	}
	if len(out) > mostProxyUsers {
		r.fail(n, "", "want at most 100 users: each has connections of its own to each server")
	}
	return out
}

func (r *reader) proxyUser(n node, before []ProxyUser) ProxyUser {
	m := r.mapping(n, "name", "database", "verifier", "login")
	login := r.mapping(m["login"], "user", "database", "password")
	u := ProxyUser{Name: r.required(m["name"], "the user name in the application's connection string"), Database: r.otherwise(m["database"], "admin"), Verifier: r.path(m["verifier"])}
	u.Login = ProxyLogin{User: r.otherwise(login["user"], u.Name), Database: r.otherwise(login["database"], u.Database), Password: r.password(login["password"])}
	switch {
	case u.Verifier == "":
		r.fail(m["verifier"], "", "missing, want the file that 'dbcontroller proxy verifier' has written")
	case u.Database == "$external" || u.Login.Database == "$external":
		r.fail(n, "", "users of $external have no passwords: want users with SCRAM-SHA-256 or SCRAM-SHA-1")
	}
	for _, other := range before {
		if other.Name == u.Name && other.Database == u.Database {
			r.fail(m["name"], u.Name, "given twice for the database "+u.Database)
		}
		// The database would take the sessions of both for those of one user.
		if other.Login.User == u.Login.User && other.Login.Database == u.Login.Database {
			r.fail(m["login"], u.Login.User, "already the login of "+other.Name+": want a login for each user")
		}
	}
	return u
}

// otherwise reads a text that has a default.
func (r *reader) otherwise(n node, def string) string {
	if s, present := r.text(n); present && s != "" {
		return s
	}
	return def
}

// password reads a reference to a password. The file itself holds none, and messages do not show one that stands
// there by mistake.
func (r *reader) password(n node) Secret {
	const want = "want $(NAME) for an environment variable or $(file:/PATH), and not the password itself"
	s, present := r.plain(n)
	if !present {
		r.fail(n, "", "missing, "+want)
		return Secret{}
	}
	if !strings.HasPrefix(s, "$(") || strings.IndexByte(s, ')') != len(s)-1 {
		r.fail(n, "", want)
		return Secret{}
	}
	return NewKey(r.required(n, "a password that is not empty"))
}

package login

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/xdg-go/scram"
	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/printable"
	"dbcontroller.dev/internal/base/watchedfile"
)

// User may log in.
type User struct {
	Name     string
	Database string // that the application names as authSource
	file     string
	read     *watchedfile.Value[Verifier]
	log      *zap.Logger

	mu     sync.Mutex
	looked time.Time
	gone   bool     // the file is
	last   Verifier // that was in force
}

// String returns the user for messages.
func (u *User) String() string { return printable.Line(u.Name + "@" + u.Database) }

// lookEvery is the least time between two looks for a file.
const lookEvery = time.Second

// Active reports whether the user's file is still there. An operator removes it to end the user's logins. A file
// that cannot be read for another reason stays in force.
func (u *User) Active() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if time.Since(u.looked) < lookEvery {
		return !u.gone
	}
	u.looked = time.Now()
	_, err := os.Stat(u.file)
	gone := errors.Is(err, fs.ErrNotExist)
	switch {
	case gone && !u.gone:
		u.log.Warn("the verifier of a user is gone: its connections end", zap.String("user", u.String()), zap.String("file", u.file))
	case !gone && u.gone:
		u.log.Info("the verifier of a user is back", zap.String("user", u.String()), zap.String("file", u.file))
	}
	u.gone = gone
	return !gone
}

// verifier returns the present verifier; nil: the user must not log in.
func (u *User) verifier() Verifier {
	if !u.Active() {
		return nil
	}
	v := u.read.Get()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.last = v
	return v
}

// latest returns the verifier that was in force last.
func (u *User) latest() Verifier {
	if v := u.verifier(); v != nil {
		return v
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.last
}

// Users are the users of a proxy.
type Users struct {
	secret []byte // of this process, for what unknown users get
	order  []*User
	of     map[[2]string]*User // by database and name
}

// Account names a user and the file of its verifier.
type Account struct{ Database, Name, File string }

// FileError means that a verifier is missing or wrong. An operator must correct it.
type FileError struct{ err error }

func (e *FileError) Error() string { return e.err.Error() }

func (e *FileError) Unwrap() error { return e.err }

// Open reads the verifiers of all accounts. A file that is missing or wrong is a *FileError.
func Open(accounts []Account, log *zap.Logger) (*Users, error) {
	us := &Users{secret: make([]byte, 32), of: map[[2]string]*User{}}
	if _, err := rand.Read(us.secret); err != nil {
		return nil, err
	}
	if log == nil {
		log = zap.NewNop()
	}
	for _, a := range accounts {
		u := &User{Name: a.Name, Database: a.Database, file: a.File, log: log}
		parse := func(texts [][]byte) (Verifier, error) {
			v, err := Parse(texts[0], a.Database, a.Name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", a.File, err)
			}
			return v, nil
		}
		var err error
		if u.read, err = watchedfile.Open("verifier of "+u.String(), log, parse, watchedfile.Secret(a.File)); err != nil {
			return nil, &FileError{err}
		}
		u.last = u.read.Get()
		us.order = append(us.order, u)
		us.of[[2]string{a.Database, a.Name}] = u
	}
	return us, nil
}

// All returns the users in the order of the accounts.
func (us *Users) All() []*User { return us.order }

// find returns a user and its verifier. An unknown name gets no user, and a verifier that no password fits. It
// looks like that of one of the others, always the same one for a name.
func (us *Users) find(database, name string) (*User, Verifier) {
	// Made for known names, too, so that both take the same time.
	fake := us.fake(database, name)
	if u := us.of[[2]string{database, name}]; u != nil {
		if v := u.verifier(); v != nil {
			return u, v
		}
	}
	return nil, fake
}

func (us *Users) fake(database, name string) Verifier {
	like := Verifier{}
	if len(us.order) > 0 {
		chosen := binary.BigEndian.Uint64(us.random("like", database, name)) % uint64(len(us.order))
		like = us.order[chosen].latest()
	}
	out := Verifier{}
	for _, m := range mechanisms {
		v, ok := like[m.name]
		if !ok {
			continue
		}
		out[m.name] = scram.StoredCredentials{
			KeyFactors: scram.KeyFactors{Salt: string(us.random(m.name+" salt", database, name)[:min(len(v.Salt), longestSalt)]), Iters: v.Iters},
			StoredKey:  us.random(m.name+" stored", database, name)[:m.size],
			ServerKey:  us.random(m.name+" server", database, name)[:m.size],
		}
	}
	return out
}

// random returns 64 bytes that only this process can compute, for a purpose and a name.
func (us *Users) random(purpose, database, name string) (out []byte) {
	for block := range byte(2) {
		mac := hmac.New(sha256.New, us.secret)
		for _, part := range []string{purpose, database, name} {
			// With the length, so that no two inputs have the same text.
			_, _ = fmt.Fprintf(mac, "%d %s", len(part), part)
		}
		_, _ = mac.Write([]byte{block})
		out = mac.Sum(out)
	}
	return out
}

// Mechanisms returns the mechanisms of a user, as hello reports them.
func (us *Users) Mechanisms(database, name string) []string {
	_, v := us.find(database, name)
	return v.names()
}

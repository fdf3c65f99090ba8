package access

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.uber.org/zap"

	"dbcontroller.dev/internal/base/watchedfile"
)

// Tokens proves identities by bearer tokens from a file with one token per line:
//
//	# name  token, or its hash: printf %s TOKEN | sha256sum
//	alice   3q2-9yPc…
//	billing sha256:9f86d081884c7d65…
//
// A name may have several lines, so that an operator can replace a token without a gap. Memory
// holds only hashes.
type Tokens struct {
	file *watchedfile.Value[[]token]
}

type token struct {
	name string
	hash [sha256.Size]byte
}

var _ Authenticator = (*Tokens)(nil)

const (
	// leastToken is the minimum length of a token. Shorter ones can be guessed.
	leastToken = 20
	hashPrefix = "sha256:"
)

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@/-]{0,199}$`)

// OpenTokens reads the file and follows its changes. At the start it refuses a file with a broken
// line. Later it logs broken lines and uses the others.
func OpenTokens(path string, log *zap.Logger) (*Tokens, error) {
	if log == nil {
		log = zap.NewNop()
	}
	running := false
	f, err := watchedfile.Open("tokens", log, func(texts [][]byte) ([]token, error) {
		// At the start an operator reads the error.
		all, broken := parseTokens(path, texts[0])
		if err := errors.Join(broken...); err != nil && !running {
			return nil, broken[0] // somebody starts it, and reads this
		}
		// An operator may break or remove a line to revoke its token, so keep no old token.
		for _, err := range broken {
			log.Error("a line of the tokens cannot be read: no token of it counts", zap.Error(err))
		}
		if len(all) == 0 {
			log.Warn("no token counts: the file has none", zap.String("file", path))
		}
		return all, nil
	}, watchedfile.Secret(path))
	running = true
	if err != nil {
		return nil, err
	}
	f.Narrowed(func(was []token, texts [][]byte) []token {
		all, _ := parseTokens(path, texts[0])
		left := slices.DeleteFunc(slices.Clone(was), func(t token) bool { return !slices.Contains(all, t) })
		// This is called once a second, so log only what changes.
		if len(left) < len(was) {
			log.Error("tokens were removed from a file that others can write: they no longer count, and new ones do not count yet", zap.String("file", path), zap.Int("left", len(left)))
		}
		return left
	})
	return &Tokens{file: f}, nil
}

// parseTokens returns the tokens of the valid lines, and an error for each other line. An error
// never quotes the file: any part of a line, even in the place of the name, may be a token.
func parseTokens(path string, text []byte) (all []token, broken []error) {
	n := 0
	for line := range strings.Lines(string(text)) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		// Two names for one token would hide which identity called.
		if err == nil && slices.ContainsFunc(all, func(o token) bool { return o.hash == t.hash && o.name != t.name }) {
			err = errors.New("another name has this token already")
		}
		if err != nil {
			broken = append(broken, fmt.Errorf("%s:%d: %w", filepath.Base(path), n, err))
			continue
		}
		all = append(all, t)
	}
	return all, broken
}

func parseToken(fields []string) (token, error) {
	if len(fields) != 2 {
		return token{}, errors.New("want a name and a token")
	}
	// The two fields may be swapped, so the error must not quote this one.
	if !tokenName.MatchString(fields[0]) {
		return token{}, errors.New("the name is none: want letters, digits, and any of . _ @ / -, and a token after it")
	}
	t := token{name: fields[0]}
	// With a hash, the file does not reveal the token.
	digits, hashed := strings.CutPrefix(fields[1], hashPrefix)
	if !hashed {
		if len(fields[1]) < leastToken {
			return t, fmt.Errorf("the token has fewer than %d characters: make one with 'openssl rand -hex 32'", leastToken)
		}
		t.hash = sha256.Sum256([]byte(fields[1]))
		return t, nil
	}
	sum, err := hex.DecodeString(digits)
	if err != nil || len(sum) != sha256.Size {
		return t, fmt.Errorf("want 64 hexadecimal digits after %s", hashPrefix)
	}
	copy(t.hash[:], sum)
	return t, nil
}

func (t *Tokens) Wants() string { return "a bearer token" }

// Authenticate implements Authenticator. It compares hashes, and always all of them, so that the
// duration reveals nothing.
func (t *Tokens) Authenticate(_ context.Context, r *http.Request) (Identity, error) {
	given, ok := bearer(r)
	if !ok {
		return Identity{}, ErrNoProof
	}
	hash := sha256.Sum256([]byte(given))
	name := ""
	for _, t := range t.file.Get() {
		// No early exit: the duration would show the position of a hash.
		if subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1 {
			name = t.name
		}
	}
	if name == "" {
		return Identity{}, ErrNoProof
	}
	return Identity{Name: "token:" + name, Proof: "token"}, nil
}

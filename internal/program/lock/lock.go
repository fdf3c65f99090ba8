// Package lock converts the access section of a configuration into the checks that the listeners of
// a process make on callers. It reports errors before anything listens. Package access decides who
// may do what; package door applies the checks.
package lock

import (
	"dbcontroller.dev/config"
	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/access/door"
	"go.uber.org/zap"
)

// New reads the configured keys, tokens and roles. It returns an error for a file that it cannot
// read. The files are read again when they change.
func New(cfg config.Access, insecure bool, log *zap.Logger) (*door.Lock, error) {
	l := &door.Lock{Hosts: cfg.Hosts, Origins: cfg.Origins, Insecure: insecure, Audit: access.NewAudit(log)}
	var err error
	if cfg.Cert != "" {
		if l.KeyPair, err = access.OpenKeyPair("certificate of the listeners", cfg.Cert, cfg.Key, log); err != nil {
			return nil, err
		}
	}
	if cfg.ClientCA != "" {
		if l.Clients, err = access.OpenClientAuthorities("authorities for client certificates", cfg.ClientCA, log); err != nil {
			return nil, err
		}
		l.Authenticators = append(l.Authenticators, access.Certificates{})
	}
	if cfg.Tokens != "" {
		tokens, err := access.OpenTokens(cfg.Tokens, log)
		if err != nil {
			return nil, err
		}
		l.Authenticators = append(l.Authenticators, tokens)
	}
	for _, i := range cfg.Issuers {
		issuer, err := access.OpenIssuer(access.IssuerConfig{
			Name: i.Name, Issuer: i.Issuer, Audience: i.Audience, Claim: i.Claim, KeysURL: i.Keys, CA: i.CA, TokenFile: i.Token,
		}, log)
		if err != nil {
			return nil, err
		}
		l.Authenticators = append(l.Authenticators, issuer)
	}
	grants := make([]access.Grant, 0, len(cfg.Roles))
	for _, r := range cfg.Roles {
		grants = append(grants, access.Grant{Role: access.Role(r.Role), Identity: r.Identity})
	}
	l.Policy, err = access.NewPolicy(grants)
	return l, err
}

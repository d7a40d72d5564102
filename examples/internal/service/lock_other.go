//go:build !unix

package service

import "errors"

func lockFile(string) (func(), error) {
	return nil, errors.New("the example needs file locks of a Unix system")
}

package taskkey

import (
	"math/big"
	"strings"
)

const plainDigits = 21 // integers up to this long, and this many places after the point, are written without an exponent

// canonicalNumber spells a valid JSON number by its value: its digits without
// outer zeros, and an exponent where the plain form would be long.
func canonicalNumber(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	mantissa, exponent := s, new(big.Int)
	if at := strings.IndexAny(s, "eE"); at >= 0 {
		mantissa = s[:at]
		exponent.SetString(strings.TrimPrefix(s[at+1:], "+"), 10)
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent.Sub(exponent, big.NewInt(int64(len(fraction))))
	significant := strings.TrimRight(digits, "0")
	if significant == "" {
		return "0"
	}
	exponent.Add(exponent, big.NewInt(int64(len(digits)-len(significant))))

	// The value is significant × 10^exponent.
	plain, ok := inPlain(significant, exponent)
	if !ok {
		plain = significant + "e" + exponent.String()
	}
	return sign + plain
}

func inPlain(significant string, exponent *big.Int) (string, bool) {
	if exponent.Sign() == 0 {
		return significant, true
	}
	if !exponent.IsInt64() {
		return "", false
	}
	switch zeros := exponent.Int64(); {
	case zeros > plainDigits || -zeros > plainDigits:
		return "", false
	case zeros > 0:
		return significant + strings.Repeat("0", int(zeros)), len(significant)+int(zeros) <= plainDigits
	default:
		point := len(significant) + int(zeros)
		if point <= 0 {
			return "0." + strings.Repeat("0", -point) + significant, true
		}
		return significant[:point] + "." + significant[point:], true
	}
}

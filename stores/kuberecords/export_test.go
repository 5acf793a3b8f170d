package kuberecords

const MaxValue = maxValue
